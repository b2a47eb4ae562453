// Whole multiples of a step that all sites share: the plan gives it, so sums of codes are sums of values. Layout: an
// 8-byte header, the codes in half a byte, or in one, two or three bytes each.
#include "kernels/ring.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/format.h"
#include "kernels/codecs/options.h"
#include "kernels/codecs/runs.h"
#include "kernels/cpu/ring_loops.h"
#include "kernels/ops/ring.h"

namespace fluvial::kernels {
namespace {

constexpr std::byte kVersion{1};
constexpr std::size_t kHeaderBytes = 8;
constexpr std::uint32_t kNibbleBits = 4;  // up to these two codes share a byte
constexpr double kMaxLeast = 0x1p-100;    // so that step and 1 / step are finite in fp32, whatever the bits
constexpr double kMaxMost = 0x1p100;

Error bad(std::string message) { return {Code::kDataLoss, "ring chunk: " + std::move(message)}; }

cpu::ValueLoops cpu::DenseLoops::* value_format(std::uint32_t bits) {
  if (bits <= kNibbleBits) return &cpu::DenseLoops::int4;
  if (bits <= 8) return &cpu::DenseLoops::int8;
  return bits <= 16 ? &cpu::DenseLoops::int16 : &cpu::DenseLoops::int24;
}

const cpu::RingWidth& ring_width(const cpu::RingLoops& loops, std::uint32_t bits) {
  if (bits <= 8) return loops.one;
  return bits <= 16 ? loops.two : loops.three;
}

class RingCodec final : public RunCodec {
 public:
  RingCodec(const CodecSpec& spec, cpu::Target target)
      : RunCodec(spec, target, value_format(spec.bits)),
        ring_loops_(cpu::ring_loops(target)),
        width_(ring_width(ring_loops_, spec.bits)),
        inverse_(std::ldexp(1.0F, ring_fraction_bits(spec))),
        step_(std::ldexp(1.0F, -ring_fraction_bits(spec))),
        most_(ops::ring_most(spec.bits)) {}

  bool lossless() const override { return false; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override {
    return kHeaderBytes + code_bytes(value_count);
  }

 protected:
  Result<std::size_t> encode(std::span<const float> chunk, std::uint64_t first_value, const StreamKey& key,
                             std::byte* out, std::span<float> residual) const override {
    const ops::RandomStream stream = ops::random_stream(key.run, key.round, key.site);
    store_le<std::uint64_t>(out, 0);
    out[0] = kVersion;
    out[1] = static_cast<std::byte>(spec().bits);
    store_le<std::uint16_t>(out + 2, static_cast<std::uint16_t>(ring_fraction_bits(spec())));
    for (std::size_t first = 0; first < chunk.size(); first += kPieceValues) {
      const std::span<const float> piece = chunk.subspan(first, std::min(kPieceValues, chunk.size() - first));
      if (loops().max_bits(piece.data(), piece.size()) >= ops::kInfinityBits) [[unlikely]] {
        return Error{Code::kInvalidArgument, "ring cannot encode: " + not_finite(piece, first_value + first).message};
      }
      std::byte* const codes = out + kHeaderBytes + code_bytes(first);
      encode_piece(piece, first_value + first, stream, codes);
      if (!residual.empty()) {
        value_loops().difference(codes, piece.size(), step_, piece.data(), residual.data() + first);
      }
    }
    return encoded_bytes_max(chunk.size());
  }

  Status check_format(ByteSpan bytes, std::size_t value_count) const override {
    const std::size_t expected = encoded_bytes_max(value_count);
    if (bytes.size() != expected) return bad(format_text("{} bytes, expected {}", bytes.size(), expected));
    if (bytes[0] != kVersion || load_le<std::uint32_t>(bytes.data() + 4) != 0) {
      return bad("a header of another version, expected 1");
    }
    const auto bits = load_le<std::uint8_t>(bytes.data() + 1);
    const auto fraction_bits = static_cast<std::int16_t>(load_le<std::uint16_t>(bytes.data() + 2));
    if (bits != spec().bits || fraction_bits != ring_fraction_bits(spec())) {
      return bad(format_text("codes of {} bits in steps of 2^{}, expected {} bits and 2^{}", bits, -fraction_bits,
                             spec().bits, -ring_fraction_bits(spec())));
    }
    return check_codes(bytes.subspan(kHeaderBytes), value_count);
  }

  CodeRun run_at(ByteSpan bytes, std::size_t value_count, std::size_t first) const override {
    return {
        .codes = bytes.data() + kHeaderBytes + code_bytes(first), .value_count = value_count - first, .scale = step_};
  }

 private:
  bool nibbles() const { return spec().bits <= kNibbleBits; }
  std::size_t code_bytes(std::size_t value_count) const {
    return nibbles() ? (value_count + 1) / 2 : value_count * ((spec().bits + 7) / 8);
  }

  Status check_codes(ByteSpan codes, std::size_t value_count) const {
    if (nibbles() && value_count % 2 != 0 && (codes.back() & std::byte{0xf0}) != std::byte{0}) {
      return bad(format_text("a code after the last, value {}", value_count - 1));
    }
    const auto most_of = nibbles() ? ring_loops_.most_nibble : width_.most;
    const auto limit = static_cast<std::uint32_t>(most_);
    for (std::size_t first = 0; first < value_count; first += kPieceValues) {
      const std::size_t length = std::min(kPieceValues, value_count - first);
      const std::uint32_t most = most_of(codes.data() + code_bytes(first), length);
      if (most <= limit) continue;
      return bad(format_text("a code of magnitude {} among values {} to {}, expected at most {}", most, first,
                             first + length - 1, limit));
    }
    return {};
  }

  void encode_piece(std::span<const float> piece, std::uint64_t first_coordinate, const ops::RandomStream& stream,
                    std::byte* out) const {
    if (!nibbles()) return round(piece, first_coordinate, stream, out);
    std::array<std::byte, kPieceValues> codes;
    round(piece, first_coordinate, stream, codes.data());
    dense_loops().pack_nibbles(reinterpret_cast<const std::int8_t*>(codes.data()), piece.size(), out);
  }

  void round(std::span<const float> piece, std::uint64_t first_coordinate, const ops::RandomStream& stream,
             std::byte* codes) const {
    const auto most = static_cast<float>(most_);
    if (!spec().stochastic) return width_.nearest(piece.data(), piece.size(), inverse_, most, codes);
    std::array<std::uint16_t, kPieceValues + 2 * ops::kRandomGroup> random;
    const auto skip = static_cast<std::size_t>(first_coordinate % ops::kRandomGroup);
    const auto groups = static_cast<std::size_t>((skip + piece.size() + ops::kRandomGroup - 1) / ops::kRandomGroup);
    loops().random(stream, first_coordinate / ops::kRandomGroup, groups, random.data());
    width_.stochastic(piece.data(), piece.size(), inverse_, most, random.data() + skip, codes);
  }

  const cpu::RingLoops& ring_loops_;
  const cpu::RingWidth& width_;
  float inverse_;
  float step_;
  std::int32_t most_;
};

Status check_ring(const CodecSpec& spec) {
  if (spec.bits < ops::kRingBitsMin || spec.bits > ops::kRingBitsMax) {
    return bad_option(format_text("bits is {}, expected {} to {}", spec.bits, ops::kRingBitsMin, ops::kRingBitsMax));
  }
  if (spec.max == 0) {
    return bad_option(
        "max is missing or 0: expected the greatest magnitude that is sent, above 0, which all sites share, as in "
        "max=0.05");
  }
  if (spec.max >= kMaxLeast && spec.max <= kMaxMost) return {};
  return bad_option(format_text("max is {}, expected {} to {}", spec.max, kMaxLeast, kMaxMost));
}

constexpr CodecOption kOptions[] = {number_option<&CodecSpec::bits>("bits"), number_option<&CodecSpec::max>("max"),
                                    kRoundingOption};

}  // namespace

int ring_fraction_bits(const CodecSpec& spec) {
  const auto most = static_cast<double>(ops::ring_most(spec.bits));
  const int bits = std::ilogb(most) - std::ilogb(spec.max);
  return std::ldexp(spec.max, bits) <= most ? bits : bits - 1;
}

double ring_value_max(const CodecSpec& spec) {
  return std::ldexp(static_cast<double>(ops::ring_most(spec.bits)), -ring_fraction_bits(spec));
}

const CodecEntry kRingEntry = {.kind = CodecKind::kRing,
                               .name = "ring",
                               .options = kOptions,
                               .check = check_ring,
                               .make = make_as<RingCodec>,
                               .required = "max=0.05"};

}  // namespace fluvial::kernels
