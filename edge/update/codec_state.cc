#include "edge/update/codec_state.h"

#include <algorithm>
#include <atomic>
#include <memory>
#include <utility>

#include "edge/update/screen.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

kernels::VectorSchema schema_of(kernels::ChunkLayout layout) { return {layout, {}}; }

Buffer zeros(std::size_t bytes) {
  Buffer state(bytes);
  std::ranges::fill(state.span(), std::byte{0});
  return state;
}

// Whose state it is: with other options it is still one of this codec.
Result<std::unique_ptr<kernels::Codec>> codec_of_state(const store::Residual& residual) {
  const Result<kernels::CodecSpec> spec = kernels::parse_codec(residual.codec());
  if (!spec.ok()) return Error{Code::kDataLoss, "the state of a codec that nobody knows: " + spec.error().message};
  return kernels::make_codec(*spec);
}

// The residual, made fit to be added; how many values had to be changed for that.
Result<std::uint64_t> read_usable(const store::Residual& residual, kernels::ChunkLayout layout, std::span<float> into,
                                  Parallel& parallel) {
  std::atomic<std::uint64_t> changed = 0;
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    FLUVIAL_ASSIGN(const std::uint64_t of_chunk,
                   read_usable_residual(residual, layout.first_value(i), layout.of(into, i)));
    changed += of_chunk;
    return {};
  }));
  return changed.load();
}

}  // namespace

bool keeps_state(const kernels::Codec& codec, kernels::ChunkLayout layout) {
  return codec.passes() == 1 && codec.state_bytes(schema_of(layout)) > 0;  // with several it is the run's
}

Result<Buffer> state_before(const kernels::Codec& codec, kernels::ChunkLayout layout, const store::Residual& residual) {
  Buffer state = zeros(codec.state_bytes(schema_of(layout)));
  if (residual.state_bytes() != state.size() || residual.info().value_count != layout.value_count) return state;
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> before, codec_of_state(residual));
  if (before->spec().kind != codec.spec().kind) return state;
  FLUVIAL_TRY(residual.read_state(state.span()));
  const kernels::ChunkLayout counted{layout.value_count, residual.chunk_values()};
  for (std::size_t i = 0; i < residual.counted_chunks(); ++i) {
    FLUVIAL_ASSIGN(const Buffer chunk, residual.counted_chunk(i));
    FLUVIAL_TRY(before->settle_chunk(schema_of(counted), i, chunk.span(), state.span()));
  }
  return state;
}

Result<Update> fold_in(const UpdateJob& job, const kernels::Codec& codec, Update own, const store::Residual& residual,
                       Parallel& parallel) {
  const kernels::VectorSchema schema = schema_of(job.layout());
  std::uint64_t lost = 0;
  Values<float> memory(residual.info().zero ? 0 : own.values().size());
  if (!residual.info().zero) {
    FLUVIAL_ASSIGN(lost, read_usable(residual, schema.layout, memory.span(), parallel));
  }
  Result<Buffer> state = state_before(codec, schema.layout, residual);
  if (!state.ok() && state.error().code != Code::kDataLoss) return state.error();
  const bool damaged = !state.ok();
  if (damaged) state = zeros(codec.state_bytes(schema));

  Update update{.p = Buffer(own.p.size()), .integers = std::move(own.integers)};
  const std::span<float> p = update.values();
  FLUVIAL_TRY(codec.fold(schema, own.values(), memory.span(), state->span(), p));
  Result<kernels::ScreenReport> report = kernels::screen(p);
  const bool unusable = !report.ok();  // with a usable residual only a damaged state can bring this about
  if (unusable) {
    state = zeros(codec.state_bytes(schema));
    FLUVIAL_TRY(codec.fold(schema, own.values(), memory.span(), state->span(), p));
    report = kernels::screen(p);
  }
  FLUVIAL_TRY(report);
  if (damaged || unusable) lost += schema.layout.value_count;
  if (job.residual_lost != nullptr) *job.residual_lost += lost;
  update.max_abs = report->max_abs;
  if (job.plan.update_norm_max > 0) update.own = std::move(own.p);
  update.state = std::move(*state);
  return update;
}

Status fold_alone(const kernels::Codec& codec, kernels::ChunkLayout layout, std::span<float> update) {
  Buffer state = zeros(codec.state_bytes(schema_of(layout)));
  return codec.fold(schema_of(layout), update, {}, state.span(), update);
}

}  // namespace fluvial::edge
