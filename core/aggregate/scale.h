// The scale of a round's integer sums (docs/design/fixed-point.md): this is the one place that says how much room a sum
// needs. No value of an update exceeds the plan's value_abs_max, and each update brings a probe of 1, whatever that is.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/result.h"
#include "core/round/plan.h"

namespace fluvial::aggregate {

// The scale of a plan whose codec sends whole numbers of steps that all sites share (ring; sign:mode=vote, of 1): there
// a sum holds whole numbers of these, or of their 512ths where old updates count with a factor. So nothing is rounded
// and partials are narrow. None: another codec.
std::optional<int> whole_scale(const round::Plan& plan);

// For participants whose maximum weights are `weight_sum` together; with such a codec it depends on the plan alone.
// kFailedPrecondition when no scale leaves room.
Result<int> scale_for(const round::Plan& plan, std::uint64_t weight_sum);

// Whether contributions of that total weight fit into a sum at this scale, whichever of them are in it.
bool has_room(double value_abs_max, int scale_bits, std::uint64_t weight_sum);

}  // namespace fluvial::aggregate
