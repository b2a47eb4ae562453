#include "core/round/told.h"

#include <algorithm>

namespace fluvial::round {

std::map<NodeId, Told::Cut> Told::tell(const std::set<NodeId>& children, const std::vector<Participant>& participants,
                                       const Way& way) {
  std::map<NodeId, Cut> cuts;
  for (const Participant& participant : participants) {
    const NodeId leads = way(participant);
    if (const auto before = told_.find(participant.site); before != told_.end()) {
      std::erase_if(before->second, [&](const auto& told) {
        const auto& [child, lease] = told;
        if (child == leads || !children.contains(child)) return false;
        if (leads == NodeId(0) && lease == participant.lease) return false;
        cuts[child].gone.push_back(participant.site);
        return true;
      });
    }
    if (!children.contains(leads)) continue;
    cuts[leads].participants.push_back(participant);
    told_[participant.site][leads] = participant.lease;
  }
  return cuts;
}

std::vector<NodeId> Told::children_of(const std::vector<SiteId>& sites) const {
  std::set<NodeId> children;
  for (const SiteId site : sites) {
    const auto found = told_.find(site);
    if (found == told_.end()) continue;
    for (const auto& [child, lease] : found->second) children.insert(child);
  }
  return {children.begin(), children.end()};
}

}  // namespace fluvial::round
