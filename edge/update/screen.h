// Whether an update, and the residual that is added to it, may be used.
#pragma once

#include <cstdint>
#include <span>

#include "core/round/schema.h"
#include "core/store/site_store.h"

namespace fluvial::edge {

// `update` are its values from `first` on, without the residual. The greatest magnitude; kDataLoss, naming tensor and
// index of the first value that is not finite or beyond value_abs_max.
Result<float> check_values(const round::Schema& schema, std::span<const float> update, std::uint64_t first,
                           double value_abs_max);

// The residual's values from `first` on, as they may be added to an update: what is no number is 0, and the sum with
// whatever check_values() lets pass is finite. How many had to be changed for that, which a damaged file alone brings
// about.
Result<std::uint64_t> read_usable_residual(store::SiteStore& store, RunId run, std::uint64_t first,
                                           std::span<float> into);

}  // namespace fluvial::edge
