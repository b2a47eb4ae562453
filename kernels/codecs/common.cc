#include "kernels/codecs/common.h"

#include <algorithm>

#include "core/base/format.h"
#include "kernels/codecs/registry.h"
#include "kernels/codecs/zstd.h"
#include "kernels/fixed.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

bool valid(const ChunkLayout& layout) { return layout.chunk_values >= 1 && layout.chunk_values <= kChunkValuesMax; }

}  // namespace

Status check_layout(const ChunkLayout& layout) {
  if (valid(layout)) return {};
  return invalid(format_text("chunks of {} values, expected 1 to {}", layout.chunk_values, kChunkValuesMax));
}

Status check_chunk(const ChunkLayout& layout, std::size_t chunk_index, std::size_t value_count) {
  if (!valid(layout) || chunk_index >= layout.chunk_count()) {
    return invalid(format_text("chunk {} of {}", chunk_index, valid(layout) ? layout.chunk_count() : 0));
  }
  if (value_count != layout.size(chunk_index)) {
    return invalid(
        format_text("chunk {} holds {} values, expected {}", chunk_index, value_count, layout.size(chunk_index)));
  }
  return {};
}

Status check_survey(const Codec& codec, const VectorSchema& schema, std::span<const float> vector, ByteSpan workspace) {
  FLUVIAL_TRY(check_layout(schema.layout));
  if (vector.size() != schema.layout.value_count) {
    return invalid(format_text("a vector of {} values, the schema has {}", vector.size(), schema.layout.value_count));
  }
  if (workspace.size() < codec.workspace_bytes(schema)) {
    return invalid(
        format_text("a workspace of {} bytes, expected {}", workspace.size(), codec.workspace_bytes(schema)));
  }
  return {};
}

Status check_survey_chunk(const Codec& codec, const VectorSchema& schema, std::size_t chunk_index,
                          std::span<const float> chunk, ByteSpan workspace) {
  if (!valid(schema.layout) || chunk_index >= schema.layout.chunk_count() ||
      chunk.size() != schema.layout.size(chunk_index) || workspace.size() < codec.workspace_bytes(schema)) {
    return invalid(format_text("chunk {} of {} values in a workspace of {} bytes does not fit the schema", chunk_index,
                               chunk.size(), workspace.size()));
  }
  return {};
}

Status check_prepare(const Codec& codec, const VectorSchema& schema, std::span<const float> vector,
                     const PassInput& input, ByteSpan state, ByteSpan workspace) {
  FLUVIAL_TRY(check_survey(codec, schema, vector, workspace));
  if (input.pass >= codec.passes()) {
    return invalid(
        format_text("pass {} of codec {}, which has {}", input.pass, to_string(codec.spec()), codec.passes()));
  }
  if (input.pass == 0 && !input.reduced.empty()) return invalid("pass 0 follows no reduced result");
  if (state.size() != codec.state_bytes(schema)) {
    return invalid(format_text("a codec state of {} bytes, expected {}", state.size(), codec.state_bytes(schema)));
  }
  return {};
}

Status check_fold(const Codec& codec, const VectorSchema& schema, std::span<const float> update,
                  std::span<const float> residual, ByteSpan state, std::span<const float> out) {
  const std::uint64_t values = schema.layout.value_count;
  if (update.size() != values || out.size() != values || (!residual.empty() && residual.size() != values)) {
    return invalid(format_text("vectors of {}, {} and {} values, the schema has {}", update.size(), residual.size(),
                               out.size(), values));
  }
  if (state.size() != codec.state_bytes(schema)) {
    return invalid(format_text("a codec state of {} bytes, expected {}", state.size(), codec.state_bytes(schema)));
  }
  return {};
}

Status check_encode(const Codec& codec, const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                    ByteSpan out) {
  FLUVIAL_TRY(check_chunk(plan.layout, chunk_index, chunk.size()));
  if (out.size() < codec.encoded_bytes_max(chunk.size())) {
    return invalid(
        format_text("room for {} encoded bytes, expected {}", out.size(), codec.encoded_bytes_max(chunk.size())));
  }
  return {};
}

Result<double> term_factor(std::uint32_t weight, int scale_bits) {
  if (weight == 0 || weight >= kWeightEnd)
    return invalid(format_text("weight {}, expected 1 to {}", weight, kWeightEnd - 1));
  FLUVIAL_CHECK(scale_bits >= kScaleBitsMin && scale_bits <= kScaleBitsMax, "a scale that scale_bits() cannot give");
  return std::ldexp(static_cast<double>(weight), scale_bits);
}

Error not_screened() {
  return {Code::kDataLoss, "a value times its weight is beyond 2^62 at this scale: larger than the screened bound"};
}

ChunkLayout Codec::pass_layout(const VectorSchema& schema, std::uint32_t) const { return schema.layout; }

Status Codec::fold(const VectorSchema& schema, std::span<const float> update, std::span<const float> residual,
                   MutableByteSpan state, std::span<float> out) const {
  FLUVIAL_TRY(check_fold(*this, schema, update, residual, state, out));
  cpu::loops().fold(update.data(), residual.empty() ? nullptr : residual.data(), update.size(), out.data());
  return {};
}

Result<EncodePlan> Codec::prepare(const VectorSchema& schema, std::span<const float> vector, const StreamKey& key,
                                  const PassInput& input, MutableByteSpan state, MutableByteSpan workspace) const {
  FLUVIAL_TRY(check_prepare(*this, schema, vector, input, state, workspace));
  return EncodePlan{.layout = schema.layout, .key = key, .pass = input.pass, .values = vector};
}

bool Codec::hands_down() const { return passes() > 1; }
std::size_t Codec::handed_bytes(const VectorSchema& schema, std::uint64_t) const {
  return hands_down() ? state_bytes(schema) : 0;
}
Status Codec::lend_chunk(const VectorSchema&, const StreamKey&, std::size_t, ByteSpan, std::span<float>,
                         MutableByteSpan) const {
  return {};
}

Result<std::size_t> Codec::encode_residual_chunk(const EncodePlan& plan, std::size_t chunk_index,
                                                 std::span<const float> chunk, MutableByteSpan out,
                                                 std::span<float> residual) const {
  FLUVIAL_ASSIGN(const std::size_t size, encode_chunk(plan, chunk_index, chunk, out));
  FLUVIAL_TRY(residual_chunk(chunk, ByteSpan(out).first(size), residual));
  return size;
}

Status Codec::survey(const VectorSchema&, std::span<const float>, const StreamKey&, MutableByteSpan) const {
  return {};
}

Status Codec::survey_chunk(const VectorSchema&, const StreamKey&, std::size_t, std::span<const float>,
                           MutableByteSpan) const {
  return {};
}

Status Codec::settle_chunk(const VectorSchema&, std::size_t, ByteSpan, MutableByteSpan) const { return {}; }

Status Codec::prepare_part(const EncodePlan& plan, std::size_t part) const {
  return invalid(format_text("part {} of {}", part, plan.parts));
}

Status Codec::leave_chunk(const EncodePlan&, std::size_t, std::span<const float>, std::span<float>) const {
  return invalid(format_text("codec {} has one pass, whose residual is residual_chunk()", to_string(spec())));
}

Result<ExpandPlan> Codec::prepare_expand(const VectorSchema& schema, std::span<const std::span<const float>> means,
                                         MutableByteSpan) const {
  FLUVIAL_TRY(check_layout(schema.layout));
  if (means.size() != 1 || means[0].size() != schema.layout.value_count) {
    return invalid(format_text("expected one mean of {} values", schema.layout.value_count));
  }
  return ExpandPlan{.schema = schema, .factors = {}, .values = means[0]};
}

Status Codec::expand_chunk(const ExpandPlan& plan, std::size_t chunk_index, std::span<float> out) const {
  FLUVIAL_TRY(check_chunk(plan.schema.layout, chunk_index, out.size()));
  std::ranges::copy(plan.schema.layout.of(plan.values, chunk_index), out.begin());
  return {};
}

Status Codec::continue_state(const VectorSchema&, const StreamKey&, ByteSpan, MutableByteSpan) const { return {}; }
Status Codec::settle(const VectorSchema&, const StreamKey&, std::span<const float>, MutableByteSpan) const {
  return {};
}

Result<std::unique_ptr<Codec>> make_codec(const CodecSpec& spec, cpu::Target target) {
  FLUVIAL_TRY(check_spec(spec));
  CodecSpec inner_spec = spec;
  inner_spec.zstd_level = 0;
  std::unique_ptr<Codec> inner = find_codec(spec.kind)->make(inner_spec, target);
  if (spec.zstd_level == 0) return inner;
  return make_zstd_codec(std::move(inner), spec);
}

}  // namespace fluvial::kernels
