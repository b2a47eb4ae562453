// What became of a site's update.
#pragma once

#include <string_view>

namespace fluvial::round {

// kRefused only for an update that was invalid: the site drops it and keeps its residual. The numbers stand in the
// coordinator's journal and in the sites' stores.
enum class Outcome { kPending = 1, kCounted = 2, kLate = 3, kRefused = 4 };

std::string_view outcome_name(Outcome outcome);  // "pending", "counted", ...; "unknown" for any other number

}  // namespace fluvial::round
