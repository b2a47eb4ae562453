// int8 with a scale a block. Layout: an 8-byte header, a scale (fp32) a block, a code (int8) a value.
#include "kernels/ops/int8.h"

#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/dense.h"
#include "kernels/codecs/options.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 8;

struct Layout {
  std::size_t block_values;
  std::size_t value_count;
  std::size_t blocks() const { return (value_count + block_values - 1) / block_values; }
  std::size_t codes_begin() const { return kHeaderBytes + blocks() * sizeof(float); }
  std::size_t bytes() const { return codes_begin() + value_count; }
};

float load_scale(ByteSpan bytes, std::size_t block) {
  float scale;
  std::memcpy(&scale, bytes.data() + kHeaderBytes + block * sizeof(float), sizeof(float));
  return scale;
}

class Int8Codec final : public DenseCodec {
 public:
  using DenseCodec::DenseCodec;
  bool lossless() const override { return false; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return layout(value_count).bytes(); }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                             std::byte* out) const override {
    const Layout layout = this->layout(chunk.size());
    const ops::RandomStream stream = ops::random_stream(key.run, key.round, key.site);
    store_le<std::uint64_t>(out, 0);
    out[0] = kVersion;
    store_le<std::uint16_t>(out + 2, static_cast<std::uint16_t>(spec().block_values));
    auto* codes = reinterpret_cast<std::int8_t*>(out + layout.codes_begin());
    for (std::size_t block = 0; block < layout.blocks(); ++block) {
      const std::size_t first = block * layout.block_values;
      const std::span<const float> values = chunk.subspan(first, std::min(layout.block_values, chunk.size() - first));
      const std::uint32_t amax_bits = loops().max_bits(values.data(), values.size());
      if (amax_bits >= ops::kInfinityBits) {
        return Error{Code::kInvalidArgument, "int8 cannot encode: " + not_finite(values, first_value + first).message};
      }
      const float scale = ops::int8_scale(amax_bits);
      std::memcpy(out + kHeaderBytes + block * sizeof(float), &scale, sizeof(float));
      quantise(values, first_value + first, scale, stream, codes + first);
    }
    return layout.bytes();
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    const Layout layout = this->layout(value_count);
    if (bytes.size() != layout.bytes()) return bad(format_text("{} bytes, expected {}", bytes.size(), layout.bytes()));
    const auto block_values = load_le<std::uint16_t>(bytes.data() + 2);
    if (bytes[0] != kVersion || bytes[1] != std::byte{0} || load_le<std::uint32_t>(bytes.data() + 4) != 0) {
      return bad("a header of another version, expected 1");
    }
    if (block_values != spec().block_values) {
      return bad(format_text("blocks of {} values, expected {}", block_values, spec().block_values));
    }
    for (std::size_t block = 0; block < layout.blocks(); ++block) {
      // Finite and not negative: as integers, such bits are below infinity's.
      if (ops::float_bits(load_scale(bytes, block)) >= ops::kInfinityBits) {
        return bad(format_text("the scale of block {}, values {} to {}, is negative or not finite", block,
                               block * layout.block_values,
                               std::min(value_count, (block + 1) * layout.block_values) - 1));
      }
    }
    const ByteSpan codes = bytes.subspan(layout.codes_begin());
    if (!codes.empty()) {
      const void* lowest = std::memchr(codes.data(), 0x80, codes.size());
      if (lowest != nullptr) {
        return bad(format_text("value {} has code -128, expected -127 to 127",
                               static_cast<const std::byte*>(lowest) - codes.data()));
      }
    }
    return {};
  }

  void decode_piece(ByteSpan bytes, std::size_t value_count, std::size_t first, std::span<float> out) const override {
    const Layout layout = this->layout(value_count);
    const auto* codes = reinterpret_cast<const std::int8_t*>(bytes.data() + layout.codes_begin());
    for (std::size_t done = 0; done < out.size();) {
      const std::size_t block = (first + done) / layout.block_values;
      const std::size_t length = std::min(out.size() - done, (block + 1) * layout.block_values - first - done);
      loops().int8_decode(codes + first + done, length, load_scale(bytes, block), out.data() + done);
      done += length;
    }
  }

 private:
  Layout layout(std::size_t value_count) const { return {spec().block_values, value_count}; }
  static Error bad(std::string message) { return {Code::kDataLoss, "int8 chunk: " + std::move(message)}; }

  void quantise(std::span<const float> values, std::uint64_t first_coordinate, float scale,
                const ops::RandomStream& stream, std::int8_t* codes) const {
    if (scale == 0) {
      std::memset(codes, 0, values.size());
    } else if (!spec().stochastic) {
      loops().int8_nearest(values.data(), values.size(), 1.0F / scale, codes);
    } else {
      std::array<std::uint16_t, kBlockValuesMax + 2 * ops::kRandomGroup> random;
      const std::size_t skip = static_cast<std::size_t>(first_coordinate % ops::kRandomGroup);
      const std::size_t groups =
          static_cast<std::size_t>((skip + values.size() + ops::kRandomGroup - 1) / ops::kRandomGroup);
      loops().random(stream, first_coordinate / ops::kRandomGroup, groups, random.data());
      loops().int8_stochastic(values.data(), values.size(), ops::kFineUnits / scale, random.data() + skip, codes);
    }
  }
};

constexpr CodecOption kOptions[] = {kBlockOption, kRoundingOption};

std::unique_ptr<Codec> make(const CodecSpec& spec, cpu::Target target) {
  return std::make_unique<Int8Codec>(spec, cpu::loops(target));
}

}  // namespace

const CodecEntry kInt8Entry = {CodecKind::kInt8, "int8", kOptions, check_block, make};

}  // namespace fluvial::kernels
