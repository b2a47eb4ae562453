// Who of those that a round asks is known not to come: it is asked, and not waited for. Quorum and scale do not know of
// it. Pure, soft state: a node that restarts waits again until it has learned this anew.
#pragma once

#include <cstdint>
#include <map>
#include <string_view>
#include <vector>

#include "core/round/gather.h"

namespace fluvial::round {

enum class Expected : std::uint8_t { kYes, kNoWorker, kSilent };
std::string_view expected_name(Expected expected);  // "yes", "no worker", "silent"

inline constexpr std::uint32_t kSilentFrom =
    3;  // rounds running of which nothing came from it, neither word nor update

class Attendance {
 public:
  // Both return whether the site was not waited for until now, and is from here on.
  // Something of the site's own: it works on the open round, declines it, or brings something.
  bool heard(SiteId site);
  // As it reports. Having none counts once a round has asked it in vain: workers are started one after the other, and
  // start again.
  bool has_workers(SiteId site, bool any);
  // A round that waited is over.
  void closed(const Gather& gather);

  Expected of(SiteId site) const;
  bool lacks_workers(SiteId site) const { return find(site).lacks_workers; }
  // How many rounds running it was asked for an update and had none in, nor one refused.
  std::uint32_t missed(SiteId site) const { return find(site).missed; }
  std::vector<SiteId> unexpected(const std::vector<Participant>& participants) const;

 private:
  struct Site {
    bool lacks_workers = false;
    bool in_vain = false;  // it was asked, and had none
    bool heard = false;    // since the last round was over
    std::uint32_t silent = 0;
    std::uint32_t missed = 0;
  };
  Site find(SiteId site) const;

  std::map<SiteId, Site> sites_;
};

}  // namespace fluvial::round
