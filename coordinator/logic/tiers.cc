#include "coordinator/logic/tiers.h"

#include <algorithm>
#include <limits>
#include <map>
#include <tuple>

namespace fluvial::coordinator {
namespace {

// Sites before aggregators, those below an aggregator before those below the coordinator, up before down.
using Order = std::tuple<bool, bool, bool>;

bool has_bytes(const Activity& activity) {
  return (activity.doing == Doing::kSending || activity.doing == Doing::kFetching) && activity.total_bytes > 0;
}

std::uint64_t sum(std::uint64_t a, std::uint64_t b) {
  return b > std::numeric_limits<std::uint64_t>::max() - a ? std::numeric_limits<std::uint64_t>::max() : a + b;
}

}  // namespace

std::vector<TierProgress> tiers(const std::vector<Transfer>& transfers) {
  std::map<Order, TierProgress> sums;
  for (const auto& [child, parent, activity] : transfers) {
    if (!has_bytes(activity)) continue;
    const Order order{child != Role::kSite, parent == Role::kCoordinator, activity.doing == Doing::kFetching};
    TierProgress& tier = sums.try_emplace(order, TierProgress{child, parent, activity.doing}).first->second;
    ++tier.nodes;
    // As a member reports it, and one may report whatever it likes.
    tier.done_bytes = sum(tier.done_bytes, std::min(activity.done_bytes, activity.total_bytes));
    tier.total_bytes = sum(tier.total_bytes, activity.total_bytes);
    if (activity.left_s) tier.left_s = std::max(tier.left_s.value_or(0), *activity.left_s);
  }
  std::vector<TierProgress> found;
  for (const auto& [order, tier] : sums) found.push_back(tier);
  return found;
}

}  // namespace fluvial::coordinator
