// Whether a plan's `codec` and `down` are ones that a run carries, for config::load_plan(). Inside cli/ only.
#pragma once

#include "core/base/result.h"
#include "core/round/plan.h"

namespace fluvial::cli {

// kInvalidArgument names the key, its value and what was expected.
Status check_plan_forms(const round::Plan& plan);

}  // namespace fluvial::cli
