#include "edge/update/resolve.h"

#include <cmath>
#include <memory>
#include <optional>

#include "edge/update/fit.h"
#include "kernels/codec.h"

namespace fluvial::edge {
namespace {

// Of p - decode(chunks), by reading both: for a submission that was written without.
Result<double> measured(const store::PendingUpdate& update) {
  const store::PendingStart& start = update.info().start;
  FLUVIAL_ASSIGN(const store::LeaveChunk leave, leave_by(start.codec, start.fit));
  const kernels::ChunkLayout layout{start.value_count, start.chunk_values};
  if (start.chunk_values == 0 || layout.chunk_count() != start.chunk_count) {
    return Error{Code::kDataLoss, "the submission's chunks do not fit its length"};
  }
  double sum = 0;
  Values<float> memory(layout.chunk_count() == 0 ? 0 : layout.size(0));
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    const std::span<float> values = memory.span().first(layout.size(i));
    FLUVIAL_TRY(update.read_p(layout.first_value(i), values));
    FLUVIAL_ASSIGN(const Buffer chunk, update.read_chunk(i));
    const Status left = leave(chunk.span(), values);
    if (!left.ok() && left.error().code == Code::kDataLoss) continue;  // its share is lost, as it is when it is read
    FLUVIAL_TRY(left);
    sum += square_sum(values);
  }
  return std::sqrt(sum);
}

// The norm of what a counted submission leaves; none when it leaves nothing.
Result<std::optional<double>> left_norm(const store::PendingUpdate& update) {
  const store::PendingInfo& info = update.info();
  if (info.start.lossless) return std::optional<double>();
  if (info.start.passes > 1) return std::optional<double>();  // it was written, with its norm, beside the last pass
  FLUVIAL_ASSIGN(const kernels::CodecSpec spec, kernels::parse_codec(info.start.codec));
  FLUVIAL_ASSIGN(const std::unique_ptr<kernels::Codec> codec, kernels::make_codec(spec));
  if (leaves_nothing(*codec, info.start.fit)) return std::optional<double>();
  if (info.left_norm) return info.left_norm;
  FLUVIAL_ASSIGN(const double norm, measured(update));
  return std::optional(norm);
}

}  // namespace

store::ResidualBounds bounds_of(const round::Plan& plan) {
  return {plan.residual_norm_max, plan.residual_age_max_rounds};
}

Result<store::Carried> resolve_pending(store::SiteStore& store, RunId run, RoundId round, round::Outcome outcome) {
  std::optional<double> left;
  if (outcome == round::Outcome::kCounted) {
    FLUVIAL_ASSIGN(const std::optional<store::PendingUpdate> pending, store.pending(run));
    if (pending && pending->info().start.round == round) {
      FLUVIAL_ASSIGN(left, left_norm(*pending));
    }
  }
  return store.resolve(run, round, outcome, left);
}

}  // namespace fluvial::edge
