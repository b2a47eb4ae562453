#include "kernels/device_codec.h"

#include "core/base/format.h"
#include "kernels/device_backend.h"
#include "kernels/device_vector.h"
#include "kernels/fixed.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {
namespace {

constexpr std::uintptr_t kAlignment = 16;

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status check_alignment(const std::byte* bytes) {
  if (reinterpret_cast<std::uintptr_t>(bytes) % kAlignment == 0) return {};
  return invalid(format_text("encoded bytes on a device begin at a multiple of {}", kAlignment));
}

Status check_length(const DeviceCodec& codec, DeviceSpan<const std::byte> bytes, std::size_t value_count) {
  FLUVIAL_TRY(check_alignment(bytes.data()));
  const std::size_t most = codec.encoded_bytes_max(value_count);
  if (bytes.size() <= most) return {};
  return Error{Code::kDataLoss,
               format_text("{} chunk of {} bytes, expected at most {}", to_string(codec.spec()), bytes.size(), most)};
}

Status check_state(const DeviceCodec& codec, const VectorSchema& schema, DeviceSpan<std::byte> state) {
  if (state.size() == codec.state_bytes(schema)) return {};
  return invalid(format_text("a codec state of {} bytes, expected {}", state.size(), codec.state_bytes(schema)));
}

Result<ScreenReport> report_of(const ChunkOutcome& outcome) {
  if (outcome.not_finite_at != ChunkOutcome::kNone) {
    return Error{Code::kDataLoss, format_text("value {} is not finite", outcome.not_finite_at)};
  }
  return ScreenReport{.max_abs = ops::bits_float(outcome.max_bits), .norm_squared = outcome.norm_squared};
}

}  // namespace

Status DeviceCodec::encode_chunk(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                                 DeviceSpan<std::byte> out, ChunkOutcome* outcome, Stream& stream) const {
  return encode_residual_chunk(plan, chunk_index, chunk, out, {}, outcome, stream);
}

Status DeviceCodec::encode_residual_chunk(const DevicePlan& plan, std::size_t chunk_index,
                                          DeviceSpan<const float> chunk, DeviceSpan<std::byte> out,
                                          DeviceSpan<float> residual, ChunkOutcome* outcome, Stream& stream) const {
  if (chunk_index >= plan.layout.chunk_count()) {
    return invalid(format_text("chunk {} of {}", chunk_index, plan.layout.chunk_count()));
  }
  if (chunk.size() != plan.layout.size(chunk_index)) {
    return invalid(
        format_text("chunk {} holds {} values, expected {}", chunk_index, chunk.size(), plan.layout.size(chunk_index)));
  }
  if (!residual.empty() && residual.size() != chunk.size()) {
    return invalid(format_text("a residual of {} values for a chunk of {}", residual.size(), chunk.size()));
  }
  if (out.size() < encoded_bytes_max(chunk.size())) {
    return invalid(format_text("{} bytes for a chunk that may take {}", out.size(), encoded_bytes_max(chunk.size())));
  }
  FLUVIAL_TRY(check_alignment(out.data()));
  *outcome = ChunkOutcome{};
  return encode(plan, chunk_index, chunk, out, residual, outcome, stream);
}

Result<std::size_t> DeviceCodec::encoded_bytes(const ChunkOutcome& outcome) const {
  if (outcome.not_finite_at != ChunkOutcome::kNone) {
    return invalid(format_text("{} cannot encode: value {} is not finite", to_string(spec()), outcome.not_finite_at));
  }
  return static_cast<std::size_t>(outcome.bytes);
}

Status DeviceCodec::screen_chunk(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                                 DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) const {
  FLUVIAL_TRY(check_length(*this, bytes, value_count));
  if (workspace.size() < screen_workspace_bytes(value_count)) {
    return invalid(
        format_text("a workspace of {} bytes, expected {}", workspace.size(), screen_workspace_bytes(value_count)));
  }
  *outcome = ChunkOutcome{};
  return value_count == 0 ? Status() : screen(bytes, value_count, first_value, workspace, outcome, stream);
}

Result<ScreenReport> DeviceCodec::screened(const ChunkOutcome& outcome) const {
  if (outcome.malformed == ChunkOutcome::kBeyondScale) {
    return Error{Code::kDataLoss, "a value times its weight is beyond 2^62 at this scale"};
  }
  if (outcome.malformed != 0) {
    return Error{Code::kDataLoss, format_text("the bytes are no {} chunk", to_string(spec()))};
  }
  return report_of(outcome);
}

std::size_t DeviceCodec::screen_workspace_bytes(std::size_t value_count) {
  return device_screen_workspace_bytes(value_count);
}

Status DeviceCodec::decode_accumulate_chunk(DeviceSpan<const std::byte> bytes, std::uint64_t first_value,
                                            std::uint32_t weight, int scale_bits, DeviceSpan<std::int64_t> sum,
                                            DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                                            Stream& stream) const {
  if (weight == 0 || weight >= kWeightEnd)
    return invalid(format_text("weight {}, expected 1 to {}", weight, kWeightEnd - 1));
  FLUVIAL_CHECK(scale_bits >= kScaleBitsMin && scale_bits <= kScaleBitsMax, "a scale that scale_bits() cannot give");
  FLUVIAL_TRY(screen_chunk(bytes, sum.size(), first_value, workspace, outcome, stream));
  return sum.empty() ? Status() : accumulate(bytes, weight, scale_bits, sum, workspace, outcome, stream);
}

Status DeviceCodec::residual_chunk(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes,
                                   DeviceSpan<float> out, Stream& stream) const {
  FLUVIAL_CHECK(out.size() == values.size(), "a residual of another length");
  FLUVIAL_TRY(check_length(*this, bytes, values.size()));
  return residual(values, bytes, out, stream);
}

Status DeviceCodec::fold(const VectorSchema& schema, DeviceSpan<const float> update, DeviceSpan<const float> residual,
                         DeviceSpan<std::byte> state, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                         Stream& stream) const {
  const std::uint64_t values = schema.layout.value_count;
  if (update.size() != values || out.size() != values || (!residual.empty() && residual.size() != values)) {
    return invalid(format_text("vectors of {}, {} and {} values, the schema has {}", update.size(), residual.size(),
                               out.size(), values));
  }
  FLUVIAL_TRY(check_state(*this, schema, state));
  if (workspace.size() < workspace_bytes(schema)) {
    return invalid(format_text("a workspace of {} bytes, expected {}", workspace.size(), workspace_bytes(schema)));
  }
  return out.empty() ? Status() : fold_state(schema, update, residual, state, workspace, out, stream);
}

Status DeviceCodec::fold_state(const VectorSchema&, DeviceSpan<const float> update, DeviceSpan<const float> residual,
                               DeviceSpan<std::byte>, DeviceSpan<std::byte>, DeviceSpan<float> out,
                               Stream& stream) const {
  return device_fold(update, residual, out, stream);
}

Status DeviceCodec::settle_chunk(const VectorSchema& schema, std::size_t chunk_index, DeviceSpan<const std::byte> bytes,
                                 DeviceSpan<std::byte> state, Stream& stream) const {
  if (chunk_index >= schema.layout.chunk_count()) {
    return invalid(format_text("chunk {} of {}", chunk_index, schema.layout.chunk_count()));
  }
  FLUVIAL_TRY(check_state(*this, schema, state));
  FLUVIAL_TRY(check_length(*this, bytes, schema.layout.size(chunk_index)));
  return settle_state(schema.layout, chunk_index, bytes, state, stream);
}

Result<ScreenReport> screened_vector(const ChunkOutcome& outcome) { return report_of(outcome); }

Result<std::unique_ptr<DeviceCodec>> make_device_codec(const Device& device, const CodecSpec& spec) {
  FLUVIAL_TRY(make_codec(spec));  // checks it
  FLUVIAL_ASSIGN(Backend* const backend, backend_of(device));
  return backend->make_codec(spec);
}

}  // namespace fluvial::kernels
