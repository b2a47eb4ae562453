#include "core/round/told.h"

#include <algorithm>

namespace fluvial::round {

Told::Cut Told::tell(NodeId child, const std::vector<Participant>& participants, const Way& way) {
  Cut cut;
  std::map<SiteId, Epoch>& told = told_[child];
  for (const Participant& participant : participants) {
    const NodeId leads = way(participant);
    if (leads == child) {
      cut.participants.push_back(participant);
      told[participant.site] = participant.lease;
      continue;
    }
    const auto before = told.find(participant.site);
    if (before == told.end()) continue;
    if (leads == NodeId(0) && before->second == participant.lease) continue;
    cut.gone.push_back(participant.site);
    told.erase(before);
  }
  return cut;
}

std::vector<NodeId> Told::children_of(const std::vector<SiteId>& sites) const {
  std::vector<NodeId> children;
  for (const auto& [child, told] : told_) {
    if (std::ranges::any_of(sites, [&](SiteId site) { return told.contains(site); })) children.push_back(child);
  }
  return children;
}

}  // namespace fluvial::round
