// Whether an update, and the residual that is added to it, may be used.
#pragma once

#include <cstdint>
#include <span>

#include "core/round/schema.h"
#include "core/store/site_store.h"

namespace fluvial::edge {

// `update` are its values from `first` on, without the residual. Returns the greatest magnitude. kDataLoss names tensor
// and index of the first value that is not finite or beyond value_abs_max.
Result<float> check_values(const round::Schema& schema, std::span<const float> update, std::uint64_t first,
                           double value_abs_max);

// The residual's values from `first` on, made fit to be added to an update: NaN becomes 0, and so does what a damaged
// file does not give back; the sum with any update that passes check_values() is finite. Returns how many values had to
// be changed, which happens only with a damaged file.
Result<std::uint64_t> read_usable_residual(const store::Residual& residual, std::uint64_t first, std::span<float> into);

}  // namespace fluvial::edge
