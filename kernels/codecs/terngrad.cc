// TernGrad. Layout: an 8-byte header, a scale (fp32) a block, and five codes a byte (ops/terngrad.h).
#include "kernels/ops/terngrad.h"

#include <algorithm>

#include "core/base/format.h"
#include "kernels/codecs/blocks.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kDigits = ops::kTernaryDigits;

// Byte j of a block that takes w bytes holds its values j, w + j, 2 w + j, 3 w + j and 4 w + j, so that whole runs of
// values go through the same arithmetic; values beyond the block are zero.
struct Layout : Blocks {
  static constexpr std::size_t packed_bytes(std::size_t values) { return (values + kDigits - 1) / kDigits; }
  std::size_t scale_at(std::size_t block) const { return kHeaderBytes + block * sizeof(float); }
  std::size_t codes_at(std::size_t block) const { return scale_at(count()) + block * packed_bytes(block_values); }
  std::size_t bytes() const {
    if (value_count == 0) return kHeaderBytes;
    return codes_at(count() - 1) + packed_bytes(size(count() - 1));
  }
};

using Codes = std::array<std::int8_t, kBlockValuesMax + kDigits>;

class TernGradCodec final : public DenseCodec {
 public:
  TernGradCodec(const CodecSpec& spec, cpu::Target target)
      : DenseCodec(spec, cpu::loops(target)),
        quantise_(cpu::qsgd_loops(target)),
        values_(cpu::dense_loops(target).int8) {}

  bool lossless() const override { return false; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return layout(value_count).bytes(); }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                             std::byte* out, std::span<float> residual) const override {
    const Layout layout = this->layout(chunk.size());
    BlockRandom random(loops(), key);
    Codes codes;
    store_le<std::uint64_t>(out, 0);
    out[0] = kVersion;
    store_le<std::uint16_t>(out + 2, static_cast<std::uint16_t>(spec().block_values));
    store_le<std::uint32_t>(out + 4, static_cast<std::uint32_t>(chunk.size()));
    for (std::size_t block = 0; block < layout.count(); ++block) {
      const std::size_t first = layout.first(block);
      const std::span<const float> values = chunk.subspan(first, layout.size(block));
      const std::size_t width = Layout::packed_bytes(values.size());
      FLUVIAL_ASSIGN(const float scale, scale_of(values, first_value + first));
      store_float(out + layout.scale_at(block), scale);
      if (scale == 0) {
        std::memset(codes.data(), 0, kDigits * width);
      } else {
        quantise_.terngrad_encode(values.data(), values.size(), ops::kChances / scale,
                                  random.of(first_value + first, values.size()), codes.data());
        std::fill(codes.begin() + static_cast<std::ptrdiff_t>(values.size()),
                  codes.begin() + static_cast<std::ptrdiff_t>(kDigits * width), std::int8_t{0});
      }
      quantise_.ternary_pack(codes.data(), width, reinterpret_cast<std::int8_t*>(out + layout.codes_at(block)));
      if (!residual.empty()) {
        values_.difference(as_bytes(codes.data()), values.size(), scale, values.data(), residual.data() + first);
      }
    }
    return layout.bytes();
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    const Layout layout = this->layout(value_count);
    FLUVIAL_TRY(check_header(bytes, layout));
    for (std::size_t block = 0; block < layout.count(); ++block) {
      // Finite and not negative: as integers, such bits are below infinity's.
      if (ops::float_bits(load_float(bytes, layout.scale_at(block))) >= ops::kInfinityBits) {
        return bad(format_text("the scale of block {}, values {} to {}, is negative or not finite", block,
                               layout.first(block), layout.first(block) + layout.size(block) - 1));
      }
      const std::size_t width = Layout::packed_bytes(layout.size(block));
      const std::int8_t* packed = codes_of(bytes, layout, block);
      if (quantise_.most(packed, width) > ops::kTernaryMost) {
        return bad(format_text("block {} has a byte that is no five codes, expected -121 to 121", block));
      }
      for (std::size_t i = layout.size(block); i < kDigits * width; ++i) {
        const ops::TernaryPlace place = ops::ternary_place(static_cast<std::int32_t>(i / width));
        if (ops::ternary_digit(packed[i % width], place) != 0)
          return bad(format_text("block {} has codes after its last value that are not zero", block));
      }
    }
    return {};
  }

  void decode_piece(ByteSpan bytes, std::size_t value_count, std::size_t first, std::span<float> out) const override {
    const Layout layout = this->layout(value_count);
    Codes codes;
    for (std::size_t done = 0; done < out.size();) {
      const std::size_t block = (first + done) / layout.block_values;
      const std::size_t skip = first + done - layout.first(block);
      const std::size_t length = std::min(out.size() - done, layout.size(block) - skip);
      const std::size_t width = Layout::packed_bytes(layout.size(block));
      const std::int8_t* packed = codes_of(bytes, layout, block);
      for (std::size_t place = skip / width; place * width < skip + length; ++place) {
        quantise_.ternary_unpack(packed, width, static_cast<std::int32_t>(place), codes.data() + place * width);
      }
      values_.decode(as_bytes(codes.data() + skip), length, load_float(bytes, layout.scale_at(block)),
                     out.data() + done);
      done += length;
    }
  }

 private:
  Layout layout(std::size_t value_count) const { return {{spec().block_values, value_count}}; }
  static Error bad(std::string message) { return {Code::kDataLoss, "terngrad chunk: " + std::move(message)}; }
  static const std::int8_t* codes_of(ByteSpan bytes, const Layout& layout, std::size_t block) {
    return reinterpret_cast<const std::int8_t*>(bytes.data() + layout.codes_at(block));
  }

  Status check_header(ByteSpan bytes, const Layout& layout) const {
    if (bytes.size() != layout.bytes()) return bad(format_text("{} bytes, expected {}", bytes.size(), layout.bytes()));
    if (bytes[0] != kVersion || bytes[1] != std::byte{0}) return bad("a header of another version, expected 1");
    const auto block_values = load_le<std::uint16_t>(bytes.data() + 2);
    if (block_values != layout.block_values) {
      return bad(format_text("blocks of {} values, expected {}", block_values, layout.block_values));
    }
    const auto value_count = load_le<std::uint32_t>(bytes.data() + 4);
    if (value_count != layout.value_count)
      return bad(format_text("{} values, expected {}", value_count, layout.value_count));
    return {};
  }

  Result<float> scale_of(std::span<const float> values, std::uint64_t first_coordinate) const {
    std::array<double, cpu::kSquareLanes> lanes{};
    const bool clips = spec().clip > 0;
    const std::uint32_t amax_bits = clips ? loops().screen(values.data(), values.size(), lanes.data())
                                          : loops().max_bits(values.data(), values.size());
    if (amax_bits >= ops::kInfinityBits) [[unlikely]] {
      return Error{Code::kInvalidArgument, "terngrad cannot encode: " + not_finite(values, first_coordinate).message};
    }
    return ops::terngrad_scale(amax_bits, clips ? sum_lanes(lanes) : 0.0, static_cast<std::uint32_t>(values.size()),
                               spec().clip);
  }

  const cpu::QsgdLoops& quantise_;
  const cpu::ValueLoops& values_;
};

constexpr CodecOption kOptions[] = {kBlockOption, number_option<&CodecSpec::clip>("clip")};

Status check(const CodecSpec& spec) {
  if (!(spec.clip == 0 || (spec.clip >= 1 && spec.clip <= 100)))
    return bad_option(format_text("clip is {}, expected 0 (none) or 1 to 100 standard deviations", spec.clip));
  return check_block(spec);
}

}  // namespace

const CodecEntry kTernGradEntry = {CodecKind::kTernGrad, "terngrad", kOptions, check, make_as<TernGradCodec>};

}  // namespace fluvial::kernels
