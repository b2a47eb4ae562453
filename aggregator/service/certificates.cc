// The aggregator's own certificate, which is renewed while sessions go on.
#include "aggregator/service/region_service.h"

namespace fluvial::aggregator {

void RegionService::with_renewal(tree::Renewal& renewal) {
  renewal_ = &renewal;
  renewal.tell([this](const std::string& chain_pem, WallTime) { certificate_renewed(chain_pem); },
               [this] { uplink_->end_past_certificate(); });
}

void RegionService::renewal_told(Duration validity, std::uint64_t trust) {
  if (renewal_ != nullptr) renewal_->told(validity, trust);
}

void RegionService::certificate_renewed(const std::string& chain_pem) {
  uplink_->tell_renewed(chain_pem);
  hub_.tell_renewed(chain_pem);
  reporter_.changed();
}

}  // namespace fluvial::aggregator
