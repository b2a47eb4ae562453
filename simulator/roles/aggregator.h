// An aggregator's process: aggregator/service as it ships, on a simulated host. Added here are the places where it may
// be wrong on purpose, and the reports to the checks.
#pragma once

#include <memory>
#include <optional>

#include "aggregator/service/region_report.h"
#include "aggregator/service/region_service.h"
#include "core/tree/uplink.h"
#include "simulator/node/node.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/counterfeit.h"
#include "simulator/roles/forgery.h"
#include "simulator/roles/renewing.h"

namespace fluvial::simulator {

class AggregatorRole final : public Node {
 public:
  AggregatorRole(Cast& cast, HostId host);
  ~AggregatorRole() override;

  void start() override;

 private:
  class Region;
  net::Awaitable<void> serve(std::shared_ptr<net::Session> session) override;
  void after_frame() override;
  bool says(v1::Envelope& message, SharedBytes& payload);
  net::Awaitable<void> look_at_ends();
  Duration look_every() const;

  Answer who_is_at(const net::HostPort& address);
  Answer enrolment();

  Cast& cast_;
  HostId answered_;  // at the last address that it tried
  Forgery forgery_;
  Counterfeit counterfeit_;
  aggregator::RegionReport report_;
  std::optional<Renewing> renewing_;      // of a certificate that ends
  std::unique_ptr<Region> region_;        // once the incarnation is known
  std::unique_ptr<tree::Uplink> uplink_;  // once the incarnation is known
};

}  // namespace fluvial::simulator
