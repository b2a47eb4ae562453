// What is refused of a plan that somebody writes. Journals hold such runs, of an earlier version, which go on, and are
// evaluated with their plans: so check_plan(), which every plan passes that is read, takes it, and so does the admin
// API.
#pragma once

#include "core/round/plan.h"

namespace fluvial::round {

// kInvalidArgument as check_plan() has it. The plan has passed that.
Status check_written_plan(const Plan& plan);

}  // namespace fluvial::round
