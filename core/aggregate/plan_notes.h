// What a plan may say, and learns badly with, or says in vain: for whoever starts a run. Nothing is lost or wrong by
// it, so it is no error.
#pragma once

#include <string>
#include <vector>

#include "core/round/plan.h"
#include "core/round/schema.h"

namespace fluvial::aggregate {

// A sentence each, with what to say instead. The codec's text is one that check_plan_codec() accepts.
std::vector<std::string> plan_notes(const round::Plan& plan);
// Of the plan with this model.
std::vector<std::string> model_notes(const round::Plan& plan, const round::Schema& schema);

}  // namespace fluvial::aggregate
