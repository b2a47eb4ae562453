#include "core/round/attendance.h"

#include <set>
#include <utility>

namespace fluvial::round {

std::string_view expected_name(Expected expected) {
  switch (expected) {
    case Expected::kYes: return "yes";
    case Expected::kNoWorker: return "no worker";
    case Expected::kSilent: return "silent";
  }
  return "yes";
}

Attendance::Site Attendance::find(SiteId site) const {
  const auto found = sites_.find(site);
  return found == sites_.end() ? Site{} : found->second;
}

Expected Attendance::of(SiteId site) const {
  const Site known = find(site);
  if (known.lacks_workers && known.in_vain) return Expected::kNoWorker;
  return known.silent >= kSilentFrom ? Expected::kSilent : Expected::kYes;
}

bool Attendance::heard(SiteId site) {
  const Expected before = of(site);
  Site& known = sites_[site];
  known.heard = true;
  known.silent = 0;
  return of(site) != before && of(site) == Expected::kYes;
}

bool Attendance::has_workers(SiteId site, bool any) {
  const bool comes = any && find(site).lacks_workers;
  const Expected before = of(site);
  Site& known = sites_[site];
  known.lacks_workers = !any;
  if (any) known.in_vain = false;
  return comes && (heard(site) || before != Expected::kYes);
}

void Attendance::closed(const Gather& gather) {
  const std::vector<SiteId> late = gather.late();
  const std::set<SiteId> missing(late.begin(), late.end());
  for (const Participant& one : gather.participants()) {
    Site& known = sites_[one.site];
    const bool was_heard = std::exchange(known.heard, false);
    const bool is_in = gather.is_counted(one.site);
    known.in_vain = known.lacks_workers && !is_in;
    known.silent = missing.contains(one.site) && !was_heard ? known.silent + 1 : 0;
    if (is_in) known.missed = 0;
    if (missing.contains(one.site)) ++known.missed;
  }
}

std::vector<SiteId> Attendance::unexpected(const std::vector<Participant>& participants) const {
  std::vector<SiteId> sites;
  for (const Participant& one : participants) {
    if (of(one.site) != Expected::kYes) sites.push_back(one.site);
  }
  return sites;
}

}  // namespace fluvial::round
