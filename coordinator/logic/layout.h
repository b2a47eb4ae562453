// Who is whose parent. A region label is a path such as "eu/west/paris": a site's parent is an aggregator whose region
// is the longest prefix of its own; an aggregator's likewise, with a strictly shorter region; whoever has none is a
// child of the coordinator. Any depth follows from the labels. Among equals the one with the fewest children, then the
// smallest id.
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
// is as good as any, so that nobody moves without need. `children` counts the children that each aggregator has.
NodeId choose_parent(const LayoutNode& node, const std::vector<LayoutNode>& aggregators, NodeId current,
                     const std::map<NodeId, std::size_t>& children);

}  // namespace fluvial::coordinator
