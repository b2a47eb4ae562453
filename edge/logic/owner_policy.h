// What a site's owner allows: which runs, of how many sites, and when. Pure: the run, the round's opening and what the
// site's clock shows go in, an objection comes out. What has begun is finished all the same: it is about beginning.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/week_hours.h"
#include "edge/logic/site_machine.h"

namespace fluvial::edge {

struct OwnerPolicy {
  std::vector<std::string> runs;  // globs on the run's name (* and ?); empty: any run
  std::uint64_t cohort_min = 0;   // participants of the round; 0: any number
  WeekHours hours;                // when training may begin
};

// `runs` is a list separated by commas. kInvalidArgument: what was expected of `hours`.
Result<OwnerPolicy> owner_policy(std::string_view runs, std::uint64_t cohort_min, std::string_view hours);

enum class OwnersRule { kRuns, kCohort, kHours };
inline constexpr std::array<OwnersRule, 3> kOwnersRules = {OwnersRule::kRuns, OwnersRule::kCohort, OwnersRule::kHours};
std::string_view owners_rule_name(OwnersRule rule);  // "runs", "cohort", "hours"

struct Objection {
  OwnersRule rule;
  Error error;  // its code drops no update (round::drops_update)
};

// Why the site takes no part in the round now; none: the owner allows it. A cohort that the coordinator has not signed
// is none.
std::optional<Objection> objection(const OwnerPolicy& policy, const Offer& offer, const WallReading& now);

}  // namespace fluvial::edge
