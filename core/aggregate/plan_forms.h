// Whether a plan file may say what it says, as far as core/config does not see it. Pure.
#pragma once

#include "core/base/result.h"
#include "core/round/plan.h"

namespace fluvial::aggregate {

// For config::load_plan(): `codec` and `down`, what they ask of the rest, and what check_written_plan() refuses.
// kInvalidArgument names the key, its value and what was expected.
Status check_plan_forms(const round::Plan& plan);

// For a plan whose author was asked for the codec and not for the optimizer: takes the one that alone goes with it, if
// there is one (1-bit Adam is both). Whether there is. A plan that somebody wrote is never changed.
bool suit_optimizer(round::Plan* plan);

}  // namespace fluvial::aggregate
