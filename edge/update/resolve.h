// What becomes of a submission once its outcome is known, and of a residual that the plan bounds. Blocking.
#pragma once

#include <optional>
#include <string>

#include "core/round/plan.h"
#include "core/store/site_store.h"

namespace fluvial::edge {

// Of a plan; 0: no bound.
struct ResidualBounds {
  double norm_max = 0;
  std::uint64_t age_max_rounds = 0;
};
ResidualBounds bounds_of(const round::Plan& plan);

struct Carried {
  store::ResidualInfo residual;  // what the next update begins with
  std::string dropped;           // why what there was is gone, with its norm; empty when nothing was dropped
};

// counted: the residual is what the codec left out, p - decode(chunks), computed chunk by chunk; late: p itself;
// refused: as it was. One transaction; the same again does nothing. Then the bounds.
Result<Carried> resolve_pending(store::SiteStore& store, RunId run, RoundId round, store::Outcome outcome,
                                ResidualBounds bounds);

// Forgets a residual beyond its bounds.
Result<Carried> apply_bounds(store::SiteStore& store, RunId run, store::ResidualInfo residual, ResidualBounds bounds);

}  // namespace fluvial::edge
