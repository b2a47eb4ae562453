#include "edge/update/resolve.h"

#include <fmt/format.h>

#include <memory>
#include <utility>
#include <vector>

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
  std::vector<float> values;
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    values.resize(layout.size(i));
    FLUVIAL_TRY(update.read_p(layout.first_value(i), values));
    FLUVIAL_ASSIGN(const Buffer chunk, update.read_chunk(i));
    FLUVIAL_TRY(leave_residual(*codec, start.fit, chunk.span(), values));
    FLUVIAL_TRY(writer->write(layout.first_value(i), values));
  }
  return writer;
}

}  // namespace

ResidualBounds bounds_of(const round::Plan& plan) { return {plan.residual_norm_max, plan.residual_age_max_rounds}; }

Result<Carried> apply_bounds(store::SiteStore& store, RunId run, store::ResidualInfo residual, ResidualBounds bounds) {
  if (residual.zero) return Carried{residual, {}};
  std::string why;
  if (bounds.norm_max > 0 && residual.norm > bounds.norm_max) {
    why = fmt::format("its norm is {:.6g}, beyond the plan's residual_norm_max of {:.6g}", residual.norm,
                      bounds.norm_max);
  } else if (bounds.age_max_rounds > 0 && residual.age_rounds > bounds.age_max_rounds) {
    why = fmt::format("unspent for {} rounds, beyond the plan's residual_age_max_rounds of {}; its norm was {:.6g}",
                      residual.age_rounds, bounds.age_max_rounds, residual.norm);
  } else {
    return Carried{residual, {}};
  }
  FLUVIAL_TRY(store.drop_residual(run));
  return Carried{{}, std::move(why)};
}

Result<Carried> resolve_pending(store::SiteStore& store, RunId run, RoundId round, store::Outcome outcome,
                                ResidualBounds bounds) {
  FLUVIAL_ASSIGN(const std::optional<store::PendingUpdate> pending, store.pending(run));
  std::unique_ptr<store::ResidualWriter> writer;
  if (outcome == store::Outcome::kCounted && pending && pending->info().start.round == round) {
    FLUVIAL_ASSIGN(writer, left_out(store, *pending));
  }
  FLUVIAL_ASSIGN(const store::ResidualInfo residual, store.resolve(run, round, outcome, std::move(writer)));
  return apply_bounds(store, run, residual, bounds);
}

}  // namespace fluvial::edge
