// What becomes of a submission once its outcome is known. Blocking.
#pragma once

#include "core/round/plan.h"
#include "core/store/site_store.h"

namespace fluvial::edge {

store::ResidualBounds bounds_of(const round::Plan& plan);

// counted: the residual is what was not sent, p - decode(chunks), computed chunk by chunk; late: p itself; refused: as
// it was; and nothing when that is beyond the bounds of the plan that the submission was made under. One transaction;
// the same again does nothing.
Result<store::Carried> resolve_pending(store::SiteStore& store, RunId run, RoundId round, round::Outcome outcome);

}  // namespace fluvial::edge
