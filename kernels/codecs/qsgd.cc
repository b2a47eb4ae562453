// QSGD. Layout: a 12-byte header, a step (fp32) a block, and the codes, packed or in Elias-gamma form (elias.h).
#include "kernels/ops/qsgd.h"

#include <algorithm>
#include <bit>

#include "core/base/format.h"
#include "kernels/codecs/blocks.h"
#include "kernels/codecs/elias.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::byte kPacked{0};
constexpr std::byte kElias{1};
constexpr std::size_t kHeaderBytes = 12;
constexpr std::size_t kStepBytes = sizeof(float);
constexpr std::size_t kLengthBytes = sizeof(std::uint16_t);  // of a block in Elias-gamma form

using Codes = std::array<std::int8_t, kBlockValuesMax>;

struct Layout : Blocks {
  std::uint32_t width;  // bits a packed code

  std::size_t packed_bytes(std::size_t values) const { return (values * width + 7) / 8; }
  std::size_t step_at(std::size_t block) const { return kHeaderBytes + block * kStepBytes; }
  std::size_t steps_end() const { return step_at(count()); }
  std::size_t codes_at(std::size_t block) const { return steps_end() + block * packed_bytes(block_values); }
  std::size_t bytes() const {
    if (value_count == 0) return kHeaderBytes;
    return codes_at(count() - 1) + packed_bytes(size(count() - 1));
  }
  // Elias-gamma form.
  std::size_t length_at(std::size_t block) const { return steps_end() + block * kLengthBytes; }
  std::size_t streams_begin() const { return length_at(count()); }
};

std::size_t load_length(ByteSpan bytes, std::size_t at) {
  std::uint16_t length;
  std::memcpy(&length, bytes.data() + at, sizeof(length));
  return length;
}

class QsgdCodec final : public DenseCodec {
 public:
  QsgdCodec(const CodecSpec& spec, cpu::Target target)
      : DenseCodec(spec, cpu::loops(target)),
        quantise_(cpu::qsgd_loops(target)),
        values_(cpu::dense_loops(target).int8),
        levels_(static_cast<std::int32_t>(spec.levels)),
        width_(static_cast<std::uint32_t>(std::bit_width(spec.levels)) + 1) {}

  bool lossless() const override { return false; }
  // An Elias-gamma form is written only when it is shorter than the packed one.
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return layout(value_count).bytes(); }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                             std::byte* out, std::span<float> residual) const override {
    if (!spec().elias) return encode_packed(chunk, first_value, key, out, residual);
    FLUVIAL_ASSIGN(const std::size_t size, encode_elias(chunk, first_value, key, out));
    if (size == 0) return encode_packed(chunk, first_value, key, out, residual);
    if (!residual.empty()) residual_of(chunk, ByteSpan(out, size), residual);
    return size;
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    const Layout layout = this->layout(value_count);
    FLUVIAL_TRY(check_header(bytes, layout));
    for (std::size_t block = 0; block < layout.count(); ++block) {
      // Finite and not negative: as integers, such bits are below infinity's.
      if (ops::float_bits(load_float(bytes, layout.step_at(block))) < ops::kInfinityBits) continue;
      return bad(format_text("the step of block {}, values {} to {}, is negative or not finite", block,
                             layout.first(block), layout.first(block) + layout.size(block) - 1));
    }
    return bytes[1] == kPacked ? check_packed(bytes, layout) : check_elias(bytes, layout);
  }

  void decode_piece(ByteSpan bytes, std::size_t value_count, std::size_t first, std::span<float> out) const override {
    const Layout layout = this->layout(value_count);
    const bool packed = bytes[1] == kPacked;
    std::size_t block = first / layout.block_values;
    std::size_t stream = packed ? 0 : layout.streams_begin();
    if (!packed) {
      for (std::size_t i = 0; i < block; ++i) stream += load_length(bytes, layout.length_at(i));
    }
    Codes codes;
    for (std::size_t done = 0; done < out.size(); ++block) {
      const std::size_t skip = first + done - layout.first(block);
      const std::size_t length = std::min(out.size() - done, layout.size(block) - skip);
      const std::int8_t* from = codes.data() + skip;
      if (packed) {
        from = packed_codes(bytes, layout, block, codes.data()) + skip;
      } else {
        const std::size_t size = load_length(bytes, layout.length_at(block));
        (void)read_elias(bytes, stream, size, std::span(codes).first(layout.size(block)));
        stream += size;
      }
      values_.decode(as_bytes(from), length, load_float(bytes, layout.step_at(block)), out.data() + done);
      done += length;
    }
  }

 private:
  Layout layout(std::size_t value_count) const { return {{spec().block_values, value_count}, width_}; }
  static Error bad(std::string message) { return {Code::kDataLoss, "qsgd chunk: " + std::move(message)}; }

  void write_header(std::byte form, std::size_t value_count, std::byte* out) const {
    store_le<std::uint64_t>(out, 0);
    out[0] = kVersion;
    out[1] = form;
    store_le<std::uint16_t>(out + 2, static_cast<std::uint16_t>(spec().block_values));
    store_le<std::uint32_t>(out + 4, static_cast<std::uint32_t>(value_count));
    store_le<std::uint32_t>(out + 8, spec().levels);
  }

  // The step and the codes of a block.
  Result<float> quantise(std::span<const float> values, std::uint64_t first_coordinate, BlockRandom* random,
                         std::int8_t* codes) const {
    std::array<double, cpu::kSquareLanes> lanes{};
    if (loops().screen(values.data(), values.size(), lanes.data()) >= ops::kInfinityBits) [[unlikely]] {
      return Error{Code::kInvalidArgument, "qsgd cannot encode: " + not_finite(values, first_coordinate).message};
    }
    const float step = ops::qsgd_step(sum_lanes(lanes), levels_);
    if (step == 0) {
      std::memset(codes, 0, values.size());
    } else {
      quantise_.qsgd_encode(values.data(), values.size(), ops::kFineUnits / step, levels_,
                            random->of(first_coordinate, values.size()), codes);
    }
    return step;
  }

  Result<std::size_t> encode_packed(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                                    std::byte* out, std::span<float> residual) const {
    const Layout layout = this->layout(chunk.size());
    BlockRandom random(loops(), key);
    Codes scratch;
    write_header(kPacked, chunk.size(), out);
    for (std::size_t block = 0; block < layout.count(); ++block) {
      const std::size_t first = layout.first(block);
      const std::size_t size = layout.size(block);
      auto* packed = reinterpret_cast<std::int8_t*>(out + layout.codes_at(block));
      std::int8_t* codes = width_ == 8 ? packed : scratch.data();
      FLUVIAL_ASSIGN(const float step, quantise(chunk.subspan(first, size), first_value + first, &random, codes));
      store_float(out + layout.step_at(block), step);
      if (width_ != 8) quantise_.pack(codes, size, width_, out + layout.codes_at(block));
      if (!residual.empty()) {
        values_.difference(as_bytes(codes), size, step, chunk.data() + first, residual.data() + first);
      }
    }
    return layout.bytes();
  }

  // Returns 0 when that would not be shorter than the packed form.
  Result<std::size_t> encode_elias(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                                   std::byte* out) const {
    const Layout layout = this->layout(chunk.size());
    std::size_t end = layout.streams_begin();
    if (end >= layout.bytes()) return std::size_t{0};
    BlockRandom random(loops(), key);
    Codes codes;
    std::array<std::byte, elias_bytes_max(kBlockValuesMax) + 8> stream;
    write_header(kElias, chunk.size(), out);
    for (std::size_t block = 0; block < layout.count(); ++block) {
      const std::size_t first = layout.first(block);
      const std::span<const float> values = chunk.subspan(first, layout.size(block));
      FLUVIAL_ASSIGN(const float step, quantise(values, first_value + first, &random, codes.data()));
      const std::size_t size = elias_encode(std::span(codes).first(values.size()), stream.data());
      if (size >= layout.bytes() - end) return std::size_t{0};
      store_float(out + layout.step_at(block), step);
      store_le<std::uint16_t>(out + layout.length_at(block), static_cast<std::uint16_t>(size));
      std::memcpy(out + end, stream.data(), size);
      end += size;
    }
    return end;
  }

  Status check_header(ByteSpan bytes, const Layout& layout) const {
    if (bytes.size() < kHeaderBytes)
      return bad(format_text("{} bytes, expected at least {}", bytes.size(), kHeaderBytes));
    if (bytes[0] != kVersion) return bad("a header of another version, expected 1");
    if (bytes[1] != kPacked && bytes[1] != kElias) return bad("a form that is neither 0 (packed) nor 1 (elias)");
    const auto block_values = load_le<std::uint16_t>(bytes.data() + 2);
    if (block_values != layout.block_values) {
      return bad(format_text("blocks of {} values, expected {}", block_values, layout.block_values));
    }
    const auto value_count = load_le<std::uint32_t>(bytes.data() + 4);
    if (value_count != layout.value_count)
      return bad(format_text("{} values, expected {}", value_count, layout.value_count));
    const auto levels = load_le<std::uint32_t>(bytes.data() + 8);
    if (levels != spec().levels) return bad(format_text("{} levels, expected {}", levels, spec().levels));
    if (bytes[1] == kPacked && bytes.size() != layout.bytes()) {
      return bad(format_text("{} bytes, expected {}", bytes.size(), layout.bytes()));
    }
    if (bytes[1] == kElias && (bytes.size() >= layout.bytes() || bytes.size() < layout.streams_begin())) {
      return bad(format_text("{} bytes in elias form, expected {} to {}", bytes.size(), layout.streams_begin(),
                             layout.bytes() - 1));
    }
    return {};
  }

  const std::int8_t* packed_codes(ByteSpan bytes, const Layout& layout, std::size_t block, std::int8_t* scratch) const {
    const std::byte* from = bytes.data() + layout.codes_at(block);
    if (width_ == 8) return reinterpret_cast<const std::int8_t*>(from);
    quantise_.unpack(from, layout.size(block), width_, scratch);
    return scratch;
  }

  Status check_packed(ByteSpan bytes, const Layout& layout) const {
    Codes scratch;
    for (std::size_t block = 0; block < layout.count(); ++block) {
      const std::size_t size = layout.size(block);
      const std::int8_t* codes = packed_codes(bytes, layout, block, scratch.data());
      if (quantise_.most(codes, size) > spec().levels) {
        const auto* at = std::find_if(codes, codes + size, [this](int code) { return std::abs(code) > levels_; });
        return bad(format_text("value {} has code {}, expected {} to {}", layout.first(block) + (at - codes), *at,
                               -levels_, levels_));
      }
      const std::size_t last_bits = size * width_ % 8;
      const std::byte last = bytes[layout.codes_at(block) + layout.packed_bytes(size) - 1];
      if (last_bits != 0 && static_cast<unsigned>(last) >> last_bits != 0) {
        return bad(format_text("block {} ends with bits that are not zero", block));
      }
    }
    return {};
  }

  bool read_elias(ByteSpan bytes, std::size_t at, std::size_t size, std::span<std::int8_t> codes) const {
    return quantise_.elias_decode(bytes.data() + at, size, bytes.size() - at, spec().levels, codes.size(),
                                  codes.data());
  }

  Status check_elias(ByteSpan bytes, const Layout& layout) const {
    Codes codes;
    std::size_t stream = layout.streams_begin();
    for (std::size_t block = 0; block < layout.count(); ++block) {
      const std::size_t size = load_length(bytes, layout.length_at(block));
      if (size > bytes.size() - stream) return bad(format_text("block {}: {} bytes do not fit", block, size));
      const auto values = std::span(codes).first(layout.size(block));
      if (!read_elias(bytes, stream, size, values)) [[unlikely]] {
        const EliasFault fault = elias_decode(bytes.subspan(stream, size), spec().levels, values);
        return bad(format_text("value {}: {}", layout.first(block) + fault.code_index, fault.what));
      }
      stream += size;
    }
    if (stream != bytes.size()) return bad(format_text("{} bytes after the last block", bytes.size() - stream));
    return {};
  }

  const cpu::QsgdLoops& quantise_;
  const cpu::ValueLoops& values_;
  std::int32_t levels_;
  std::uint32_t width_;
};

struct EncodingWords {
  static constexpr std::string_view key = "encoding", yes = "elias", no = "packed";
};

constexpr CodecOption kOptions[] = {kBlockOption, number_option<&CodecSpec::levels>("levels"),
                                    choice_option<&CodecSpec::elias, EncodingWords>()};

Status check(const CodecSpec& spec) {
  if (spec.levels < 1 || spec.levels > kEliasMost)
    return bad_option(format_text("levels is {}, expected 1 to {}", spec.levels, kEliasMost));
  return check_block(spec);
}

}  // namespace

const CodecEntry kQsgdEntry = {CodecKind::kQsgd, "qsgd", kOptions, check, make_as<QsgdCodec>};

}  // namespace fluvial::kernels
