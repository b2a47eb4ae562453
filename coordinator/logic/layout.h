// Who is whose parent. A region label is a path such as "eu/west/paris". A site's parent is the aggregator whose region
// is the longest prefix of the site's. An aggregator's parent is chosen alike, with a strictly shorter region. A node
// without such an aggregator is a child of the coordinator. Any depth follows from the labels. Among equals the parent
// is the aggregator with the fewest children, then with the smallest id.
#pragma once

#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace fluvial::coordinator {

struct LayoutNode {
  NodeId id;
  Role role = Role::kSite;
  std::string region;  // "" is above every region
};

// Whether `prefix` names the same region as `region` or one around it.
bool region_contains(std::string_view prefix, std::string_view region);

// The parent of `node` among `aggregators` (those that may serve now); 0 is the coordinator. `current` stays while it
// is as good as any, so that no node moves without need. `children` counts the children of each aggregator.
NodeId choose_parent(const LayoutNode& node, const std::vector<LayoutNode>& aggregators, NodeId current,
                     const std::map<NodeId, std::size_t>& children);

}  // namespace fluvial::coordinator
