#include "edge/service/owner.h"

#include <ctime>

namespace fluvial::edge {

WallReading wall_reading(WallTime now) {
  const std::time_t seconds = std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  std::tm local{};
  ::tzset();  // localtime_r() need not
  ::localtime_r(&seconds, &local);
  return {(local.tm_wday + 6) % 7, local.tm_hour * 60 + local.tm_min};
}

Owner::Owner(const config::OwnerSettings& settings, const Clock& clock, SiteReport& report)
    : policy_(owner_policy(settings.runs, settings.cohort_min, settings.hours).value()),
      clock_(clock),
      report_(report) {}

std::optional<Error> Owner::objection(const Offer& offer) {
  const std::optional<Objection> found = edge::objection(policy_, offer, wall_reading(clock_.wall_now()));
  if (!found) return std::nullopt;
  const std::tuple now(offer.run, offer.round, offer.attempt);
  if (reported_ != now) report_.forbidden(offer, *found);
  reported_ = now;
  return found->error;
}

}  // namespace fluvial::edge
