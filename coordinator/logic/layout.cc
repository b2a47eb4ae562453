#include "coordinator/logic/layout.h"

#include <tuple>

namespace fluvial::coordinator {

bool region_contains(std::string_view prefix, std::string_view region) {
  if (prefix.empty()) return true;
  return region.starts_with(prefix) && (region.size() == prefix.size() || region[prefix.size()] == '/');
}

NodeId choose_parent(const LayoutNode& node, const std::vector<LayoutNode>& aggregators, NodeId current,
                     const std::map<NodeId, std::size_t>& children) {
  const LayoutNode* best = nullptr;
  // Longer regions first, then the current parent, then fewer children, then the smaller id.
  const auto rank = [&](const LayoutNode& candidate) {
    const auto found = children.find(candidate.id);
    const std::size_t load = found == children.end() ? 0 : found->second;
    return std::tuple(-static_cast<std::ptrdiff_t>(candidate.region.size()), candidate.id != current, load,
                      candidate.id);
  };
  for (const LayoutNode& candidate : aggregators) {
    if (candidate.id == node.id || !region_contains(candidate.region, node.region)) continue;
    // An aggregator under one of the same region could end up above itself.
    if (node.role == Role::kAggregator && candidate.region.size() >= node.region.size()) continue;
    if (best == nullptr || rank(candidate) < rank(*best)) best = &candidate;
  }
  return best == nullptr ? NodeId(0) : best->id;
}

}  // namespace fluvial::coordinator
