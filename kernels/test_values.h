// Vectors that tests run over. For tests alone.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>
#include <span>
#include <string>
#include <vector>

#include "core/base/rng.h"
#include "kernels/codec.h"
#include "kernels/ring.h"

namespace fluvial::kernels::test_values {

inline float normal(Rng& rng) {
  const double u = 1.0 - rng.uniform();
  return static_cast<float>(std::sqrt(-2.0 * std::log(u)) * std::cos(6.283185307179586 * rng.uniform()));
}

inline std::vector<float> normals(std::size_t count, std::uint64_t seed, float deviation = 1.0F) {
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) value = deviation * normal(rng);
  return values;
}

// Finite values of every magnitude up to `limit`: any bits, zeros of both signs, denormals, powers of two, ties.
inline std::vector<float> adversarial(std::size_t count, std::uint64_t seed, float limit) {
  constexpr float kSpecial[] = {0.0F,     -0.0F,      1.0F, -1.0F, 0x1p-149F, -0x1p-149F, 0x1p-126F, 0x0.fffffep-126F,
                                0x1.8p0F, -0x1.8p-1F, 0.5F, -0.5F, 2.5F,      127.0F,     -127.5F,   0x1.fffffep-1F};
  Rng rng(seed);
  std::vector<float> values(count);
  for (float& value : values) {
    const std::uint64_t draw = rng.next();
    value = draw % 3 == 0 ? kSpecial[(draw >> 8) % std::size(kSpecial)]
                          : std::bit_cast<float>(static_cast<std::uint32_t>(draw >> 32));
    if (!(std::fabs(value) <= limit)) value = draw % 2 == 0 ? limit : -limit;
  }
  return values;
}

inline std::vector<std::uint32_t> bits_of(std::span<const float> values) {
  std::vector<std::uint32_t> bits;
  bits.reserve(values.size());
  for (const float value : values) bits.push_back(std::bit_cast<std::uint32_t>(value));
  return bits;
}

struct Encoded {
  Buffer state;
  Buffer workspace;  // which the plan may point into
  EncodePlan plan;
  std::vector<Buffer> chunks;
};

// Prepares and encodes a whole vector; the caller's codec must accept it.
inline Encoded encode(const Codec& codec, std::span<const float> vector, std::uint64_t chunk_values,
                      StreamKey key = {1, 2, 3}) {
  const VectorSchema schema{.layout = {.value_count = vector.size(), .chunk_values = chunk_values}, .tensors = {}};
  Encoded encoded{.state = Buffer(codec.state_bytes(schema)), .workspace = Buffer(codec.workspace_bytes(schema))};
  std::ranges::fill(encoded.state.span(), std::byte{0});
  encoded.plan = codec.prepare(schema, vector, key, {}, encoded.state.span(), encoded.workspace.span()).value();
  for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
    const auto chunk = schema.layout.of(vector, i);
    Buffer bytes(codec.encoded_bytes_max(chunk.size()));
    bytes.shrink(codec.encode_chunk(encoded.plan, i, chunk, bytes.span()).value());
    encoded.chunks.push_back(std::move(bytes));
  }
  return encoded;
}

inline std::vector<float> decode(const Codec& codec, const Encoded& encoded) {
  std::vector<float> vector(encoded.plan.layout.value_count);
  for (std::size_t i = 0; i < encoded.chunks.size(); ++i) {
    const Status status = codec.decode_chunk(encoded.chunks[i].span(), encoded.plan.layout.of(std::span(vector), i));
    FLUVIAL_CHECK(status.ok(), "what was encoded decodes");
  }
  return vector;
}

inline std::unique_ptr<Codec> codec_of(std::string_view text, cpu::Target target = cpu::best_target()) {
  return make_codec(parse_codec(text).value(), target).value();
}

// The bytes may be of the same codec with other settings: the reference reads them, which knows the codec's name alone.
inline bool other_settings(const Codec& codec, ByteSpan bytes, std::size_t value_count) {
  const CodecSpec& spec = codec.spec();
  if (bytes.size() < 4) return false;
  if (spec.kind == CodecKind::kOnebitAdam && bytes.size() == value_count * sizeof(float)) return false;  // fp32
  const auto block = load_le<std::uint16_t>(bytes.data() + 2);
  if (spec.kind == CodecKind::kInt8 || spec.kind == CodecKind::kInt4 || spec.kind == CodecKind::kTernGrad)
    return block != spec.block_values;
  if (spec.kind == CodecKind::kQsgd) {
    const std::uint32_t levels = bytes.size() >= 12 ? load_le<std::uint32_t>(bytes.data() + 8) : 0;
    return block != spec.block_values || levels != spec.levels;
  }
  if (spec.kind == CodecKind::kSign || spec.kind == CodecKind::kOnebitAdam)
    return bytes[1] != std::byte{spec.vote} || (!spec.vote && block != spec.block_values);
  if (spec.kind == CodecKind::kRing) {
    const auto fraction_bits = static_cast<std::int16_t>(load_le<std::uint16_t>(bytes.data() + 2));
    return load_le<std::uint8_t>(bytes.data() + 1) != spec.bits || fraction_bits != ring_fraction_bits(spec);
  }
  return false;
}

inline const std::vector<std::string>& codec_texts() {
  static const std::vector<std::string> texts = {"fp32",
                                                 "sign",
                                                 "sign:block=2048",
                                                 "sign:block=300",
                                                 "sign:mode=vote",
                                                 "fp16",
                                                 "bf16",
                                                 "int4",
                                                 "int4:block=130,rounding=nearest",
                                                 "int8",
                                                 "int8:block=128,rounding=nearest",
                                                 "int8:block=300",
                                                 "qsgd",
                                                 "qsgd:levels=1",
                                                 "qsgd:block=300,levels=20",
                                                 "qsgd:block=2048,levels=4,encoding=elias",
                                                 "qsgd:block=130,encoding=elias",
                                                 "terngrad",
                                                 "terngrad:block=301,clip=2.5",
                                                 "topk",
                                                 "topk:ratio=0.2",
                                                 "topk:ratio=1",
                                                 "topk:select=sampled",
                                                 "randk",
                                                 "randk:ratio=0.3,mode=unbiased",
                                                 "dgc",
                                                 "dgc:ratio=0.02,warmup=3"};
  static const std::vector<std::string> all = [] {
    std::vector<std::string> with_zstd = texts;
    if (zstd_available()) {
      with_zstd.insert(with_zstd.end(), {"fp32:zstd=1", "fp16:zstd=3", "bf16:zstd=1", "topk:ratio=0.2,zstd=19"});
    }
    with_zstd.insert(with_zstd.end(),
                     {"ring:max=1", "ring:max=0.01,rounding=nearest", "ring:bits=2,max=600", "ring:bits=4,max=3",
                      "ring:bits=6,max=0.3", "ring:bits=12,max=0.05", "ring:bits=16,max=300,rounding=nearest",
                      "ring:bits=24,max=512", "onebit_adam", "onebit_adam:freeze=1,block=300"});
    return with_zstd;
  }();
  return all;
}

}  // namespace fluvial::kernels::test_values
