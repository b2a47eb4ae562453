#include "core/transfer/cut.h"

#include <algorithm>
#include <iterator>
#include <utility>

namespace fluvial::transfer {

std::optional<wire::Opening> cut_opening(wire::Opening whole, const round::Gather& gather, NodeId child,
                                         const Via& via) {
  whole.participants.clear();
  whole.counted.clear();
  const std::vector<SiteId> counted = gather.counted();  // in order
  for (const round::Participant& participant : gather.participants()) {
    if (via(participant.site) != child) continue;
    whole.participants.push_back(participant);
    if (std::binary_search(counted.begin(), counted.end(), participant.site)) whole.counted.push_back(participant.site);
  }
  if (whole.participants.empty()) return std::nullopt;
  return whole;
}

wire::Commit cut_commit(const wire::Commit& whole, NodeId child, const Via& via) {
  wire::Commit cut{whole.run, whole.round, whole.attempt, whole.model, {}, {}, whole.last, {}};
  for (const auto& [site, entry] : whole.contributors.entries()) {
    if (via(site) != child) continue;
    const Status added = cut.contributors.add({entry.site, entry.lease, entry.weight, entry.digest, 0, {}});
    FLUVIAL_CHECK(added.ok(), "a part of a contributor set");
  }
  for (const round::Refusal& refusal : whole.refusals) {
    if (via(refusal.site) == child) cut.refusals.push_back(refusal);
  }
  std::ranges::copy_if(whole.late, std::back_inserter(cut.late), [&](SiteId site) { return via(site) == child; });
  return cut;
}

}  // namespace fluvial::transfer
