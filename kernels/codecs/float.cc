// fp32, fp16 and bf16: every value by itself, no header.
#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/runs.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

// `Format` has the static members kName, kValueBytes, kLossless and kLoops, and encodes a piece: the greatest magnitude
// in it, as bits, or 0 where anything may be encoded.
template <typename Format>
class FloatCodec final : public RunCodec {
 public:
  FloatCodec(const CodecSpec& spec, cpu::Target target) : RunCodec(spec, target, Format::kLoops) {}
  bool lossless() const override { return Format::kLossless; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return value_count * Format::kValueBytes; }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey&, std::byte* out,
                             std::span<float> residual) const override {
    for (std::size_t first = 0; first < chunk.size(); first += kPieceValues) {
      const std::span<const float> piece = chunk.subspan(first, std::min(kPieceValues, chunk.size() - first));
      std::byte* codes = out + first * Format::kValueBytes;
      if (Format::encode(dense_loops(), piece, codes) >= ops::kInfinityBits) [[unlikely]] {
        return Error{Code::kInvalidArgument, format_text("{} cannot encode: {}", Format::kName,
                                                         not_finite(piece, first_value + first).message)};
      }
      if (!residual.empty()) {
        value_loops().difference(codes, piece.size(), 1, piece.data(), residual.data() + first);
      }
    }
    return chunk.size() * Format::kValueBytes;
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    const std::size_t expected = value_count * Format::kValueBytes;
    if (bytes.size() == expected) return {};
    return Error{Code::kDataLoss,
                 format_text("{} chunk of {} bytes, expected {}", Format::kName, bytes.size(), expected)};
  }

  CodeRun run_at(ByteSpan bytes, std::size_t value_count, std::size_t first) const override {
    return {.codes = bytes.data() + first * Format::kValueBytes, .value_count = value_count - first, .scale = 1};
  }
};

struct Fp32 {
  static constexpr std::string_view kName = "fp32";
  static constexpr std::size_t kValueBytes = 4;
  static constexpr bool kLossless = true;
  static constexpr auto kLoops = &cpu::DenseLoops::fp32;
  static std::uint32_t encode(const cpu::DenseLoops&, std::span<const float> piece, std::byte* out) {
    std::memcpy(out, piece.data(), piece.size_bytes());
    return 0;
  }
};

struct Bf16 {
  static constexpr std::string_view kName = "bf16";
  static constexpr std::size_t kValueBytes = 2;
  static constexpr bool kLossless = false;
  static constexpr auto kLoops = &cpu::DenseLoops::bf16;
  static std::uint32_t encode(const cpu::DenseLoops& loops, std::span<const float> piece, std::byte* out) {
    return loops.bf16_encode(piece.data(), piece.size(), out);
  }
};

struct Fp16 {
  static constexpr std::string_view kName = "fp16";
  static constexpr std::size_t kValueBytes = 2;
  static constexpr bool kLossless = false;
  static constexpr auto kLoops = &cpu::DenseLoops::fp16;
  static std::uint32_t encode(const cpu::DenseLoops& loops, std::span<const float> piece, std::byte* out) {
    return loops.fp16_encode(piece.data(), piece.size(), out);
  }
};

}  // namespace

const CodecEntry kFp32Entry = {CodecKind::kFp32, Fp32::kName, {}, check_nothing, make_as<FloatCodec<Fp32>>};
const CodecEntry kFp16Entry = {CodecKind::kFp16, Fp16::kName, {}, check_nothing, make_as<FloatCodec<Fp16>>};
const CodecEntry kBf16Entry = {CodecKind::kBf16, Bf16::kName, {}, check_nothing, make_as<FloatCodec<Bf16>>};

}  // namespace fluvial::kernels
