// How far the transfers of the moment are, tier by tier: sites and their aggregators, aggregators and the coordinator.
// Sums of what nodes report of themselves; a node that reports no bytes is in none. Pure.
#pragma once

#include <cstdint>
#include <optional>
#include <vector>

#include "coordinator/logic/absence.h"
#include "core/base/ids.h"

namespace fluvial::coordinator {

// What one node sends to its parent, or fetches from it.
struct Transfer {
  Role child = Role::kSite;
  Role parent = Role::kCoordinator;
  Activity activity;
};

struct TierProgress {
  Role child = Role::kSite;
  Role parent = Role::kCoordinator;
  Doing doing = Doing::kSending;  // or kFetching: from the parent
  std::uint64_t nodes = 0;
  std::uint64_t done_bytes = 0;
  std::uint64_t total_bytes = 0;
  // Until the last of them is through: the longest that one of them needs by its rate so far. None: nobody can tell.
  std::optional<double> left_s;
  bool operator==(const TierProgress&) const = default;
};

// From the leaves to the root; of each tier what goes up comes first.
std::vector<TierProgress> tiers(const std::vector<Transfer>& transfers);

}  // namespace fluvial::coordinator
