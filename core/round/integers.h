// What the integer tensors of a contribution may hold (docs/formats/model.md). A commit takes the greatest value of all
// contributors. So a value that is too great would stay in the model for good, and one that its dtype cannot hold could
// not be committed.
#pragma once

#include <cstdint>
#include <span>

#include "core/base/result.h"
#include "core/round/schema.h"

namespace fluvial::round {

// How far a value may lie above the base model's. This is far more than one round adds, and the most rounds that a run
// can have (check_plan) do not overflow an I64 with it.
inline constexpr std::int64_t kIntegerStepMax = std::int64_t{1} << 32;

// `base` are the integers of the model that was trained from. Each value must fit its dtype (a BOOL is 0 or 1) and be
// at most kIntegerStepMax above the base's. kDataLoss names the tensor and the value that breaks this. Sizes must fit
// the schema (checked, our own invariant).
Status check_integers(const Schema& schema, std::span<const std::int64_t> base, std::span<const std::int64_t> integers);

}  // namespace fluvial::round
