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

Result<Update> fold_in(const UpdateJob& job, const kernels::Codec& codec, const kernels::StreamKey& key, Update own,
                       const store::Residual& residual, Parallel& parallel) {
  const kernels::VectorSchema schema = schema_of(job.layout());
  const kernels::ChunkLayout& layout = schema.layout;
  Result<Buffer> state = state_before(codec, layout, residual);
  if (!state.ok() && state.error().code != Code::kDataLoss) return state.error();
  const bool damaged = !state.ok();
  if (damaged) state = zeros(codec.state_bytes(schema));

  Update update{.p = Buffer(own.p.size()), .integers = std::move(own.integers)};
  const std::span<float> p = update.values();
  // Without the record nobody can tell what of the residual was lent: it would count twice.
  bool is_zero = residual.info().zero || (damaged && codec.hands_down());
  Values<float> memory(is_zero && !codec.hands_down() ? 0 : p.size());
  std::atomic<std::uint64_t> lost = 0;
  const auto fold = [&]() -> Status {
    lost = 0;
    const std::size_t chunks = memory.span().empty() ? 0 : layout.chunk_count();
    FLUVIAL_TRY(parallel.for_each(chunks, [&](std::size_t i) -> Status {
      const std::span<float> chunk = layout.of(memory.span(), i);
      if (is_zero) {
        std::ranges::fill(chunk, 0.0F);
      } else {
        FLUVIAL_ASSIGN(const std::uint64_t changed, read_usable_residual(residual, layout.first_value(i), chunk));
        lost += changed;
      }
      return codec.lend_chunk(schema, key, i, key.round == 0 ? ByteSpan() : job.handed, chunk, state->span());
    }));
    return codec.fold(schema, own.values(), memory.span(), state->span(), p);
  };
  FLUVIAL_TRY(fold());
  Result<kernels::ScreenReport> report = kernels::screen(p);
  // With a usable residual only a damaged state can make p unusable. And of a residual that is damaged, in part, the
  // record is of no use: what was lent would be given back and was not there.
  const bool unusable = !report.ok() || (codec.hands_down() && lost > 0);
  if (unusable) {
    state = zeros(codec.state_bytes(schema));
    is_zero = is_zero || codec.hands_down();
    FLUVIAL_TRY(fold());
    report = kernels::screen(p);
  }
  FLUVIAL_TRY(report);
  if (job.residual_lost != nullptr) *job.residual_lost += lost + (damaged || unusable ? layout.value_count : 0);
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
