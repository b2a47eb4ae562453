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
  for (const auto& [node, child] : hub_.children()) tell_denials(child);
}

// An aggregator that shows no lease is of the version before, which knows no denials.
void RegionService::tell_denials(const tree::Child& child) {
  if (child.role != Role::kAggregator || !child.lease_shown || denials_.last() == nullptr) return;
  v1::Envelope down;
  *down.mutable_denials() = *denials_.last();
  hub_.send(child.node, std::move(down));
}

}  // namespace fluvial::aggregator
