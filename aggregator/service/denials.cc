// Whom the coordinator refuses: followed here, and passed on to the aggregators below.
#include "aggregator/service/region_service.h"

namespace fluvial::aggregator {

Status RegionService::denials_told(round::HistoryId history, const identity::PublicKey& coordinator,
                                   const v1::Denials* denials) {
  FLUVIAL_TRY(denials_.granted(history, coordinator, denials));
  follow_denials();
  return {};
}

Status RegionService::denials_passed_on(const v1::Denials& message) {
  FLUVIAL_ASSIGN(const bool newer, denials_.told(message));
  if (newer) follow_denials();
  return {};
}

void RegionService::follow_denials() {
  hub_.drop_denied();
  carry_out(machine_.denied(denials_.nodes(), now()));
  hub_.tell_denials(denials_.last());
}

}  // namespace fluvial::aggregator
