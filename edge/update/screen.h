// Whether an update may be sent.
#pragma once

#include <cstdint>
#include <span>

#include "core/round/schema.h"

namespace fluvial::edge {

// `p` are the update's values from `first` on. kDataLoss, naming tensor and index of the first that is not finite or
// beyond value_abs_max.
Status check_values(const round::Schema& schema, std::span<const float> p, std::uint64_t first, double value_abs_max);

}  // namespace fluvial::edge
