// What the integer tensors of a contribution may hold (docs/formats/model.md). The greatest value of all contributors
// is what is committed, so one that is too great would stay, and one that its dtype cannot hold could not be committed.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/result.h"
#include "core/round/schema.h"

namespace fluvial::round {

// What a value may be above the base model's. Far more than a round counts, and as often as a run can have rounds
// (check_plan) it does not fill an I64.
inline constexpr std::int64_t kIntegerStepMax = std::int64_t{1} << 32;

// `base` are the integers of the model that was trained from. Each value fits its dtype (a BOOL is 0 or 1) and is at
// most kIntegerStepMax above the base's. kDataLoss names the tensor and the value that is not. Sizes must fit the
// schema (checked, our own invariant).
Status check_integers(const Schema& schema, std::span<const std::int64_t> base, std::span<const std::int64_t> integers);

}  // namespace fluvial::round
