#include "kernels/codec_common.h"

#include <fmt/format.h>

#include "kernels/fixed.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

bool valid(const ChunkLayout& layout) { return layout.chunk_values >= 1 && layout.chunk_values <= kChunkValuesMax; }

}  // namespace

Status check_prepare(const Codec& codec, const VectorSchema& schema, std::span<const float> vector,
                     const PassInput& input, ByteSpan state, ByteSpan workspace) {
  if (!valid(schema.layout))
    return invalid(fmt::format("chunks of {} values, expected 1 to {}", schema.layout.chunk_values, kChunkValuesMax));
  if (vector.size() != schema.layout.value_count) {
    return invalid(fmt::format("a vector of {} values, the schema has {}", vector.size(), schema.layout.value_count));
  }
  if (input.pass >= codec.passes()) {
    return invalid(
        fmt::format("pass {} of codec {}, which has {}", input.pass, to_string(codec.spec()), codec.passes()));
  }
  if (input.pass == 0 && !input.reduced.empty()) return invalid("pass 0 follows no reduced result");
  if (state.size() != codec.state_bytes(schema)) {
    return invalid(fmt::format("a codec state of {} bytes, expected {}", state.size(), codec.state_bytes(schema)));
  }
  if (workspace.size() < codec.workspace_bytes(schema)) {
    return invalid(
        fmt::format("a workspace of {} bytes, expected {}", workspace.size(), codec.workspace_bytes(schema)));
  }
  return {};
}

Status check_encode(const Codec& codec, const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                    ByteSpan out) {
  if (!valid(plan.layout) || chunk_index >= plan.layout.chunk_count()) {
    return invalid(fmt::format("chunk {} of {}", chunk_index, valid(plan.layout) ? plan.layout.chunk_count() : 0));
  }
  if (chunk.size() != plan.layout.size(chunk_index)) {
    return invalid(
        fmt::format("chunk {} holds {} values, expected {}", chunk_index, chunk.size(), plan.layout.size(chunk_index)));
  }
  if (out.size() < codec.encoded_bytes_max(chunk.size())) {
    return invalid(
        fmt::format("room for {} encoded bytes, expected {}", out.size(), codec.encoded_bytes_max(chunk.size())));
  }
  return {};
}

Result<double> term_factor(std::uint32_t weight, int scale_bits) {
  if (weight == 0 || weight >= kWeightEnd)
    return invalid(fmt::format("weight {}, expected 1 to {}", weight, kWeightEnd - 1));
  FLUVIAL_CHECK(scale_bits >= kScaleBitsMin && scale_bits <= kScaleBitsMax, "a scale that scale_bits() cannot give");
  return std::ldexp(static_cast<double>(weight), scale_bits);
}

Error not_finite(std::span<const float> values, std::uint64_t first_value) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = ops::magnitude_bits(values[i]);
    if (bits < ops::kInfinityBits) continue;
    return {Code::kDataLoss, fmt::format("value {} is {}, expected a finite number", first_value + i,
                                         bits > ops::kInfinityBits ? "NaN" : "infinite")};
  }
  return {Code::kInternal, "all values are finite"};
}

Error not_screened() {
  return {Code::kDataLoss, "a value times its weight is beyond 2^62 at this scale: larger than the screened bound"};
}

double sum_lanes(std::span<double, cpu::kSquareLanes> lanes) {
  for (std::size_t half = cpu::kSquareLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec, cpu::Target target) {
  FLUVIAL_TRY(check_spec(spec));
  const cpu::Loops& loops = cpu::loops(target);
  switch (spec.kind) {
    case CodecKind::kFp32: return make_fp32(spec, loops);
    case CodecKind::kBf16: return make_bf16(spec, loops);
    case CodecKind::kInt8: return make_int8(spec, loops);
    case CodecKind::kTopk: return make_topk(spec, loops);
  }
  return Error{Code::kInvalidArgument, "a codec of no known kind"};
}

}  // namespace fluvial::kernels
