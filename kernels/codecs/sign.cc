// 1-bit sign: +-(mean magnitude of the block), or +-1 for a majority vote. Layout: an 8-byte header, a scale (fp32) a
// block unless it is a vote, a bit a value. Blocks begin at a byte of their own. One pass over blocks that stay in the
// first-level cache does everything; no value is written out to be read again.
#include "kernels/ops/sign.h"

#include <algorithm>
#include <cstring>

#include "kernels/codecs/common.h"
#include "kernels/codecs/options.h"
#include "kernels/cpu/sign_loops.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 8;
constexpr std::size_t kVoteBlock = 2048;  // votes have no blocks: any multiple of 8 that stays in the cache

struct Layout {
  std::size_t block;
  std::size_t value_count;
  bool vote;

  std::size_t blocks() const { return (value_count + block - 1) / block; }
  std::size_t length(std::size_t index) const { return std::min(block, value_count - index * block); }
  std::size_t bits_begin() const { return kHeaderBytes + (vote ? 0 : blocks() * sizeof(float)); }
  std::size_t block_bits_begin(std::size_t index) const { return bits_begin() + index * ((block + 7) / 8); }
  std::size_t bytes() const {
    return bits_begin() + value_count / block * ((block + 7) / 8) + (value_count % block + 7) / 8;
  }
  // The scales of a chunk, or null for votes, as the loops take them.
  template <typename Byte>
  Byte* scales(Byte* chunk) const {
    return vote ? nullptr : chunk + kHeaderBytes;
  }
};

float load_scale(ByteSpan bytes, std::size_t block) {
  float scale;
  std::memcpy(&scale, bytes.data() + kHeaderBytes + block * sizeof(float), sizeof(float));
  return scale;
}

Error bad(std::string message) { return {Code::kDataLoss, "sign chunk: " + std::move(message)}; }

class SignCodec final : public Codec {
 public:
  SignCodec(const CodecSpec& spec, cpu::Target target) : spec_(spec), loops_(cpu::sign_loops(target)) {}

  const CodecSpec& spec() const override { return spec_; }
  bool lossless() const override { return false; }
  std::uint32_t passes() const override { return 1; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return layout(value_count).bytes(); }
  std::size_t workspace_bytes(const VectorSchema&) const override { return 0; }
  std::size_t state_bytes(const VectorSchema&) const override { return 0; }

  Result<std::size_t> encode_chunk(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                                   MutableByteSpan out) const override {
    return encode(plan, chunk_index, chunk, out, nullptr);
  }

  Result<std::size_t> encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                            std::span<const float> chunk, MutableByteSpan out,
                                            std::span<float> residual) const override {
    FLUVIAL_CHECK(residual.size() == chunk.size(), "a residual of another length");
    return encode(plan, chunk_index, chunk, out, residual.data());
  }

  Status decode_chunk(ByteSpan bytes, std::span<float> out) const override {
    FLUVIAL_TRY(check_format(bytes, out.size()));
    const Layout layout = this->layout(out.size());
    loops_.decode(layout.scales(bytes.data()), bytes.data() + layout.bits_begin(), out.size(), layout.block,
                  out.data());
    return {};
  }

  Status decode_accumulate_chunk(ByteSpan bytes, std::uint32_t weight, int scale_bits,
                                 std::span<std::int64_t> sum) const override {
    FLUVIAL_ASSIGN(const double factor, term_factor(weight, scale_bits));
    FLUVIAL_TRY(check_format(bytes, sum.size()));
    const Layout layout = this->layout(sum.size());
    if (ops::fixed_product(max_scale(bytes, layout), factor) > ops::kTermLimit) return not_screened();
    loops_.accumulate(layout.scales(bytes.data()), bytes.data() + layout.bits_begin(), sum.size(), layout.block, factor,
                      sum.data());
    return {};
  }

  Result<ScreenReport> screen_chunk(ByteSpan bytes, std::size_t value_count, std::uint64_t) const override {
    FLUVIAL_TRY(check_format(bytes, value_count));
    const Layout layout = this->layout(value_count);
    std::array<double, cpu::kSquareLanes> lanes{};
    loops_.squares(layout.scales(bytes.data()), value_count, layout.block, lanes.data());
    return ScreenReport{.max_abs = max_scale(bytes, layout), .norm_squared = sum_lanes(lanes)};
  }

  Status residual_chunk(std::span<const float> values, ByteSpan bytes, std::span<float> out) const override {
    FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
    FLUVIAL_TRY(check_format(bytes, values.size()));
    const Layout layout = this->layout(values.size());
    loops_.residual(values.data(), layout.scales(bytes.data()), bytes.data() + layout.bits_begin(), values.size(),
                    layout.block, out.data());
    return {};
  }

  Status decode_add_chunk(ByteSpan bytes, float weight, std::span<float> sum) const override {
    FLUVIAL_TRY(check_format(bytes, sum.size()));
    const Layout layout = this->layout(sum.size());
    loops_.add(layout.scales(bytes.data()), bytes.data() + layout.bits_begin(), sum.size(), layout.block, weight,
               sum.data());
    return {};
  }

 private:
  Layout layout(std::size_t value_count) const {
    return {spec_.vote ? kVoteBlock : spec_.block_values, value_count, spec_.vote};
  }
  std::uint16_t header_block() const {
    return spec_.vote ? std::uint16_t{0} : static_cast<std::uint16_t>(spec_.block_values);
  }

  Result<std::size_t> encode(const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                             MutableByteSpan out, float* residual) const {
    FLUVIAL_TRY(check_encode(*this, plan, chunk_index, chunk, out));
    const Layout layout = this->layout(chunk.size());
    store_le<std::uint64_t>(out.data(), 0);
    out[0] = kVersion;
    out[1] = std::byte{spec_.vote ? std::uint8_t{1} : std::uint8_t{0}};
    store_le<std::uint16_t>(out.data() + 2, header_block());
    const std::size_t encoded = loops_.encode(chunk.data(), chunk.size(), layout.block, layout.scales(out.data()),
                                              out.data() + layout.bits_begin(), residual);
    if (encoded == layout.blocks()) return layout.bytes();
    const std::size_t first = encoded * layout.block;
    return Error{Code::kInvalidArgument,
                 "sign cannot encode: " + not_finite(chunk.subspan(first, layout.length(encoded)),
                                                     plan.layout.first_value(chunk_index) + first)
                                              .message};
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const {
    const Layout layout = this->layout(value_count);
    if (bytes.size() != layout.bytes()) return bad(format_text("{} bytes, expected {}", bytes.size(), layout.bytes()));
    if (bytes[0] != kVersion || load_le<std::uint32_t>(bytes.data() + 4) != 0) {
      return bad("a header of another version, expected 1");
    }
    if (bytes[1] != std::byte{spec_.vote ? std::uint8_t{1} : std::uint8_t{0}}) {
      return bad(
          format_text("mode {}, expected {}", static_cast<unsigned>(bytes[1]), spec_.vote ? "1 (vote)" : "0 (scaled)"));
    }
    const auto block = load_le<std::uint16_t>(bytes.data() + 2);
    if (block != header_block()) return bad(format_text("blocks of {} values, expected {}", block, header_block()));
    FLUVIAL_TRY(check_scales(bytes, layout));
    return check_unused_bits(bytes, layout);
  }

  static Status check_scales(ByteSpan bytes, const Layout& layout) {
    for (std::size_t block = 0; !layout.vote && block < layout.blocks(); ++block) {
      // Finite and not negative: as integers, such bits are below infinity's.
      if (ops::float_bits(load_scale(bytes, block)) >= ops::kInfinityBits) {
        return bad(format_text("the scale of block {}, values {} to {}, is negative or not finite", block,
                               block * layout.block, block * layout.block + layout.length(block) - 1));
      }
    }
    return {};
  }

  // The bits after a block's last value, in its last byte, are zero.
  static Status check_unused_bits(ByteSpan bytes, const Layout& layout) {
    const std::size_t blocks = layout.blocks();
    for (std::size_t block = layout.block % 8 != 0 || blocks == 0 ? 0 : blocks - 1; block < blocks; ++block) {
      const std::size_t length = layout.length(block);
      const auto last = static_cast<unsigned>(bytes[layout.block_bits_begin(block) + (length - 1) / 8]);
      if (last >> ((length - 1) % 8 + 1) != 0) {
        return bad(
            format_text("bits are set after value {}, the last of its block", block * layout.block + length - 1));
      }
    }
    return {};
  }

  // Of scales that check_format accepted; 1 for votes.
  static float max_scale(ByteSpan bytes, const Layout& layout) {
    if (layout.vote) return layout.value_count == 0 ? 0.0F : 1.0F;
    float most = 0.0F;
    for (std::size_t block = 0; block < layout.blocks(); ++block) most = std::max(most, load_scale(bytes, block));
    return most;
  }

  CodecSpec spec_;
  const cpu::SignLoops& loops_;
};

struct ModeWords {
  static constexpr std::string_view key = "mode", yes = "vote", no = "scaled";
};
constexpr CodecOption kOptions[] = {kBlockOption, choice_option<&CodecSpec::vote, ModeWords>()};

}  // namespace

const CodecEntry kSignEntry = {CodecKind::kSign, "sign", kOptions, check_block, make_as<SignCodec>};

}  // namespace fluvial::kernels
