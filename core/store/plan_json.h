// Plans and schemas as JSON text: in the journal and in the admin API. Canonical: every key, in a fixed order, numbers
// that read back to the same value. Strict when read: an unknown or repeated key and a wrong type are refused by name.
#pragma once

#include <string>
#include <string_view>

#include "core/round/contribution.h"
#include "core/round/plan.h"
#include "core/round/schema.h"

namespace fluvial::store {

std::string plan_to_json(const round::Plan& plan);
// The same for people, and to make another plan of: without the keys that a plan file may not have beside the others,
// which are a momentum where the optimizer has none.
std::string plan_as_written(const round::Plan& plan);
// Keys that are absent keep their defaults. kInvalidArgument; check_plan() has passed when it returns a plan.
Result<round::Plan> plan_from_json(std::string_view json);

std::string schema_to_json(const round::Schema& schema);  // [{"name":"w","dtype":"F32","shape":[3,2]},...]
Result<round::Schema> schema_from_json(std::string_view json);

// {"loss":0.5}. What counts in no mean (core/round/reported.h) is left out, and in what a site reported it is null.
std::string metrics_to_json(const round::Metrics& metrics);
std::string reported_to_json(const round::Metrics& metrics);
Result<round::Metrics> metrics_from_json(std::string_view json);  // null: NaN

}  // namespace fluvial::store
