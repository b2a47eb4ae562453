// Resolves a submission once its outcome is known. Blocking.
#pragma once

#include "core/round/plan.h"
#include "core/store/site_store.h"

namespace fluvial::edge {

store::ResidualBounds bounds_of(const round::Plan& plan);

// The new residual. Counted: what was not sent, p - decode(chunks), which is computed when it is read. Late: p itself.
// Refused: unchanged. Zero, if that exceeds the bounds of the plan that the submission was made under. One transaction,
// that writes no values; a repetition does nothing.
Result<store::Carried> resolve_pending(store::SiteStore& store, RunId run, RoundId round, round::Outcome outcome);

}  // namespace fluvial::edge
