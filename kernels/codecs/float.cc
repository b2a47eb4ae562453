// fp32 and bf16: every value by itself, no header.
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/dense.h"
#include "kernels/codecs/options.h"

namespace fluvial::kernels {
namespace {

Status check_length(std::string_view name, ByteSpan bytes, std::size_t expected) {
  if (bytes.size() == expected) return {};
  return Error{Code::kDataLoss, format_text("{} chunk of {} bytes, expected {}", name, bytes.size(), expected)};
}

class Fp32Codec final : public DenseCodec {
 public:
  using DenseCodec::DenseCodec;
  bool lossless() const override { return true; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return value_count * sizeof(float); }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t, const StreamKey&,
                             std::byte* out) const override {
    if (!chunk.empty()) std::memcpy(out, chunk.data(), chunk.size_bytes());
    return chunk.size_bytes();
  }
  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    return check_length("fp32", bytes, value_count * sizeof(float));
  }
  void decode_piece(ByteSpan bytes, std::size_t, std::size_t first, std::span<float> out) const override {
    if (!out.empty()) std::memcpy(out.data(), bytes.data() + first * sizeof(float), out.size_bytes());
  }
};

class Bf16Codec final : public DenseCodec {
 public:
  using DenseCodec::DenseCodec;
  bool lossless() const override { return false; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return value_count * 2; }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t, const StreamKey&,
                             std::byte* out) const override {
    loops().bf16_encode(chunk.data(), chunk.size(), out);
    return chunk.size() * 2;
  }
  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    return check_length("bf16", bytes, value_count * 2);
  }
  void decode_piece(ByteSpan bytes, std::size_t, std::size_t first, std::span<float> out) const override {
    loops().bf16_decode(bytes.data() + 2 * first, out.size(), out.data());
  }
};

template <typename T>
std::unique_ptr<Codec> make(const CodecSpec& spec, cpu::Target target) {
  return std::make_unique<T>(spec, cpu::loops(target));
}

}  // namespace

const CodecEntry kFp32Entry = {CodecKind::kFp32, "fp32", {}, check_nothing, make<Fp32Codec>};
const CodecEntry kBf16Entry = {CodecKind::kBf16, "bf16", {}, check_nothing, make<Bf16Codec>};

}  // namespace fluvial::kernels
