// A parent that skips its checks (tamper.h): its machine is shown an arrival that looks right, while its sum gets what
// really came. Honest processes pass through here unchanged.
#pragma once

#include <algorithm>
#include <utility>

#include "core/round/gather.h"
#include "core/transfer/incoming.h"
#include "simulator/roles/tamper.h"

namespace fluvial::simulator {

inline bool is_overlooked(Tamper& tamper, Code code) {
  return (code == Code::kStale && tamper.admits_stale()) || (code == Code::kAlreadyExists && tamper.merges_overlap());
}

// The contributors of an arrival that the machine is shown.
inline round::ContributorSet shown(Tamper& tamper, const round::Gather& gather,
                                   const round::ContributorSet& contributors) {
  if (!tamper.admits_stale() && !tamper.merges_overlap()) return contributors;
  round::ContributorSet out;
  const std::vector<SiteId> counted = gather.counted();
  for (const auto& [site, entry] : contributors.entries()) {
    round::Contribution other = entry;
    if (tamper.merges_overlap() && std::ranges::binary_search(counted, site)) continue;
    for (const round::Participant& participant : gather.participants()) {
      if (participant.site == site && tamper.admits_stale()) other.lease = participant.lease;
    }
    const Status added = out.add(std::move(other));
    FLUVIAL_CHECK(added.ok(), "a part of a set");
  }
  return out;
}

// The part of the sum's contributors that the machine was shown.
inline round::ContributorSet shown_of(Tamper& tamper, const round::Gather& gather,
                                      const round::ContributorSet& with_probes) {
  if (!tamper.merges_overlap()) return with_probes;
  round::ContributorSet out;
  for (const auto& [site, entry] : with_probes.entries()) {
    if (gather.held().contains(site)) continue;
    const Status added = out.add(entry);
    FLUVIAL_CHECK(added.ok(), "a part of a set");
  }
  return out;
}

}  // namespace fluvial::simulator
