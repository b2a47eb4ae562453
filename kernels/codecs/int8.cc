// int8 and int4 with a scale a block. Layout: an 8-byte header, a scale (fp32) a block, the codes of the values in one
// byte or in half a byte each.
#include "kernels/ops/int8.h"

#include <algorithm>
#include <cstring>

#include "core/base/format.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/runs.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 8;

// `Width` has the static members kName, kMost, kCodesInByte and kLoops.
template <typename Width>
class IntCodec final : public RunCodec {
 public:
  IntCodec(const CodecSpec& spec, cpu::Target target) : RunCodec(spec, target, Width::kLoops) {}
  bool lossless() const override { return false; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return codes_begin(value_count) + code_bytes(value_count);
  }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                             std::byte* out, std::span<float> residual) const override {
    const ops::RandomStream stream = ops::random_stream(key.run, key.round, key.site);
    store_le<std::uint64_t>(out, 0);
    out[0] = kVersion;
    store_le<std::uint16_t>(out + 2, static_cast<std::uint16_t>(spec().block_values));
    std::byte* codes_out = out + codes_begin(chunk.size());
    for (std::size_t block = 0; block < blocks(chunk.size()); ++block) {
      const std::size_t first = block * block_size();
      const std::span<const float> values = chunk.subspan(first, std::min(block_size(), chunk.size() - first));
      const std::uint32_t amax_bits = loops().max_bits(values.data(), values.size());
      if (amax_bits >= ops::kInfinityBits) [[unlikely]] {
        return Error{Code::kInvalidArgument, format_text("{} cannot encode: {}", Width::kName,
                                                         not_finite(values, first_value + first).message)};
      }
      const float scale = ops::block_scale(amax_bits, Width::kMost);
      std::memcpy(out + kHeaderBytes + block * sizeof(float), &scale, sizeof(float));
      std::byte* codes = codes_out + first / Width::kCodesInByte;
      encode_block(values, first_value + first, scale, stream, codes);
      if (!residual.empty()) {
        value_loops().difference(codes, values.size(), scale, values.data(), residual.data() + first);
      }
    }
    return encoded_bytes_max(chunk.size());
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    const std::size_t expected = encoded_bytes_max(value_count);
    if (bytes.size() != expected) return bad(format_text("{} bytes, expected {}", bytes.size(), expected));
    const auto block_values = load_le<std::uint16_t>(bytes.data() + 2);
    if (bytes[0] != kVersion || bytes[1] != std::byte{0} || load_le<std::uint32_t>(bytes.data() + 4) != 0) {
      return bad("a header of another version, expected 1");
    }
    if (block_values != spec().block_values) {
      return bad(format_text("blocks of {} values, expected {}", block_values, spec().block_values));
    }
    for (std::size_t block = 0; block < blocks(value_count); ++block) {
      // Finite and not negative: as integers, such bits are below infinity's.
      if (ops::float_bits(load_scale(bytes, block)) >= ops::kInfinityBits) {
        return bad(format_text("the scale of block {}, values {} to {}, is negative or not finite", block,
                               block * block_size(), std::min(value_count, (block + 1) * block_size()) - 1));
      }
    }
    return check_codes(bytes.subspan(codes_begin(value_count)), value_count);
  }

  CodeRun run_at(ByteSpan bytes, std::size_t value_count, std::size_t first) const override {
    const std::size_t block = first / block_size();
    return {.codes = bytes.data() + codes_begin(value_count) + first / Width::kCodesInByte,
            .value_count = std::min((block + 1) * block_size(), value_count) - first,
            .scale = load_scale(bytes, block)};
  }

 private:
  std::size_t block_size() const { return spec().block_values; }
  std::size_t blocks(std::size_t value_count) const { return (value_count + block_size() - 1) / block_size(); }
  std::size_t codes_begin(std::size_t value_count) const { return kHeaderBytes + blocks(value_count) * sizeof(float); }
  static std::size_t code_bytes(std::size_t value_count) {
    return (value_count + Width::kCodesInByte - 1) / Width::kCodesInByte;
  }
  static Error bad(std::string_view message) {
    return {Code::kDataLoss, format_text("{} chunk: {}", Width::kName, message)};
  }

  static float load_scale(ByteSpan bytes, std::size_t block) {
    float scale;
    std::memcpy(&scale, bytes.data() + kHeaderBytes + block * sizeof(float), sizeof(float));
    return scale;
  }

  Status check_codes(ByteSpan codes, std::size_t value_count) const {
    if (codes.empty()) return {};
    if constexpr (Width::kCodesInByte == 1) {
      const void* lowest = std::memchr(codes.data(), 0x80, codes.size());
      if (lowest == nullptr) return {};
      return bad(format_text("value {} has code -128, expected -127 to 127",
                             static_cast<const std::byte*>(lowest) - codes.data()));
    } else {
      if (value_count % 2 != 0 && (codes.back() & std::byte{0xf0}) != std::byte{0}) {
        return bad(format_text("a code after the last, value {}", value_count - 1));
      }
      if (!dense_loops().lowest_nibble(codes.data(), codes.size())) return {};
      for (std::size_t i = 0;; ++i) {
        if (((codes[i / 2] >> (4 * (i % 2))) & std::byte{0xf}) == std::byte{8}) {
          return bad(format_text("value {} has code -8, expected -7 to 7", i));
        }
      }
    }
  }

  void encode_block(std::span<const float> values, std::uint64_t first_coordinate, float scale,
                    const ops::RandomStream& stream, std::byte* out) const {
    if (scale == 0) {
      std::memset(out, 0, code_bytes(values.size()));
    } else if constexpr (Width::kCodesInByte == 1) {
      round(values, first_coordinate, scale, stream, reinterpret_cast<std::int8_t*>(out));
    } else {
      std::array<std::int8_t, kBlockValuesMax> codes;
      round(values, first_coordinate, scale, stream, codes.data());
      dense_loops().pack_nibbles(codes.data(), values.size(), out);
    }
  }

  void round(std::span<const float> values, std::uint64_t first_coordinate, float scale,
             const ops::RandomStream& stream, std::int8_t* codes) const {
    if (!spec().stochastic) {
      dense_loops().round_nearest(values.data(), values.size(), 1.0F / scale, codes);
      return;
    }
    std::array<std::uint16_t, kBlockValuesMax + 2 * ops::kRandomGroup> random;
    const auto skip = static_cast<std::size_t>(first_coordinate % ops::kRandomGroup);
    const auto groups = static_cast<std::size_t>((skip + values.size() + ops::kRandomGroup - 1) / ops::kRandomGroup);
    loops().random(stream, first_coordinate / ops::kRandomGroup, groups, random.data());
    dense_loops().round_stochastic(values.data(), values.size(), ops::kFineUnits / scale, random.data() + skip, codes);
  }
};

struct Int8 {
  static constexpr std::string_view kName = "int8";
  static constexpr float kMost = ops::kInt8Most;
  static constexpr std::size_t kCodesInByte = 1;
  static constexpr auto kLoops = &cpu::DenseLoops::int8;
};

struct Int4 {
  static constexpr std::string_view kName = "int4";
  static constexpr float kMost = ops::kInt4Most;
  static constexpr std::size_t kCodesInByte = 2;
  static constexpr auto kLoops = &cpu::DenseLoops::int4;
};

constexpr CodecOption kOptions[] = {kBlockOption, kRoundingOption};

Status check_even_block(const CodecSpec& spec) {
  FLUVIAL_TRY(check_block(spec));
  if (spec.block_values % 2 == 0) return {};
  return bad_option(format_text("block is {}, expected an even number", spec.block_values));
}

}  // namespace

const CodecEntry kInt8Entry = {CodecKind::kInt8, Int8::kName, kOptions, check_block, make_as<IntCodec<Int8>>};
const CodecEntry kInt4Entry = {CodecKind::kInt4, Int4::kName, kOptions, check_even_block, make_as<IntCodec<Int4>>};

}  // namespace fluvial::kernels
