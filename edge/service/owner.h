// The site's owner at the door of each round: edge/logic/owner_policy.h with the machine's clock. On the node's strand.
#pragma once

#include <optional>
#include <tuple>

#include "core/base/clock.h"
#include "core/config/settings.h"
#include "edge/logic/owner_policy.h"
#include "edge/service/site_report.h"

namespace fluvial::edge {

// What a clock on this machine's wall shows (the zone of TZ, or the system's).
WallReading wall_reading(WallTime now);

class Owner {
 public:
  // `settings` was checked when it was read.
  Owner(const config::OwnerSettings& settings, const Clock& clock, SiteReport& report);

  // Why the site takes no part in this round now. Reported once for each attempt.
  std::optional<Error> objection(const Offer& offer);

 private:
  OwnerPolicy policy_;
  const Clock& clock_;
  SiteReport& report_;
  std::optional<std::tuple<RunId, RoundId, AttemptId>> reported_;
};

}  // namespace fluvial::edge
