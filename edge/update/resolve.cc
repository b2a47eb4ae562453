#include "edge/update/resolve.h"

#include <memory>
#include <optional>
#include <utility>

#include "edge/update/fit.h"
#include "kernels/codec.h"

namespace fluvial::edge {
namespace {

// p - decode(chunks) of a counted submission; none when nothing was left out.
Result<std::unique_ptr<store::ResidualWriter>> left_out(store::SiteStore& store, const store::PendingUpdate& update) {
  const store::PendingStart& start = update.info().start;
  if (start.lossless) return std::unique_ptr<store::ResidualWriter>();
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(start.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  if (codec->lossless() && start.fit.whole()) return std::unique_ptr<store::ResidualWriter>();
  const kernels::ChunkLayout layout{start.value_count, start.chunk_values};
  if (start.chunk_values == 0 || layout.chunk_count() != start.chunk_count) {
    return Error{Code::kDataLoss, "the submission's chunks do not fit its length"};
  }
  FLUVIAL_ASSIGN(std::unique_ptr<store::ResidualWriter> writer, store.begin_residual(start.run));
  Values<float> memory(layout.chunk_count() == 0 ? 0 : layout.size(0));
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    const std::span<float> values = memory.span().first(layout.size(i));
    FLUVIAL_TRY(update.read_p(layout.first_value(i), values));
    FLUVIAL_ASSIGN(const Buffer chunk, update.read_chunk(i));
    FLUVIAL_TRY(leave_residual(*codec, start.fit, chunk.span(), values));
    FLUVIAL_TRY(writer->write(layout.first_value(i), values));
  }
  return writer;
}

}  // namespace

store::ResidualBounds bounds_of(const round::Plan& plan) {
  return {plan.residual_norm_max, plan.residual_age_max_rounds};
}

Result<store::Carried> resolve_pending(store::SiteStore& store, RunId run, RoundId round, round::Outcome outcome) {
  FLUVIAL_ASSIGN(const std::optional<store::PendingUpdate> pending, store.pending(run));
  std::unique_ptr<store::ResidualWriter> writer;
  if (outcome == round::Outcome::kCounted && pending && pending->info().start.round == round) {
    FLUVIAL_ASSIGN(writer, left_out(store, *pending));
  }
  return store.resolve(run, round, outcome, std::move(writer));
}

}  // namespace fluvial::edge
