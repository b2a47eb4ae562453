#include "edge/logic/owner_policy.h"

#include <algorithm>
#include <utility>

#include "core/base/glob.h"

namespace fluvial::edge {
namespace {

Objection object(OwnersRule rule, std::string why) {
  return {rule, {Code::kFailedPrecondition, "the site's owner allows " + std::move(why)}};
}

std::string listed(const std::vector<std::string>& globs) {
  std::string text;
  for (const std::string& glob : globs) text += (text.empty() ? "" : ", ") + glob;
  return text;
}

std::string_view trim(std::string_view text) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  return text;
}

}  // namespace

Result<OwnerPolicy> owner_policy(std::string_view runs, std::uint64_t cohort_min, std::string_view hours) {
  OwnerPolicy policy;
  policy.cohort_min = cohort_min;
  FLUVIAL_ASSIGN(policy.hours, WeekHours::parse(hours));
  for (std::size_t begin = 0; begin <= runs.size();) {
    const std::size_t comma = std::min(runs.find(',', begin), runs.size());
    const std::string_view glob = trim(runs.substr(begin, comma - begin));
    if (!glob.empty()) policy.runs.emplace_back(glob);
    begin = comma + 1;
  }
  return policy;
}

std::string_view owners_rule_name(OwnersRule rule) {
  switch (rule) {
    case OwnersRule::kRuns: return "runs";
    case OwnersRule::kCohort: return "cohort";
    case OwnersRule::kHours: return "hours";
  }
  return "unknown";
}

std::optional<Objection> objection(const OwnerPolicy& policy, const Offer& offer, const WallReading& now) {
  const auto fits = [&](const std::string& glob) { return fits_glob(glob, offer.plan.name); };
  if (!policy.runs.empty() && std::ranges::none_of(policy.runs, fits)) {
    return object(OwnersRule::kRuns, "only runs named " + listed(policy.runs));
  }
  if (policy.cohort_min > 0) {
    const std::string least = "only rounds of at least " + std::to_string(policy.cohort_min) + " sites";
    if (!offer.cohort) {
      return object(OwnersRule::kCohort, least + ", and nobody has signed how many take part in this one");
    }
    if (*offer.cohort < policy.cohort_min) {
      return object(OwnersRule::kCohort, least + ": this one asks " + std::to_string(*offer.cohort));
    }
  }
  if (!policy.hours.has(now)) {
    return object(OwnersRule::kHours, "training only at " + policy.hours.text() + ": there it is " + to_string(now));
  }
  return std::nullopt;
}

}  // namespace fluvial::edge
