// Who belongs to the federation, and who is where, as gauges: from the book at the moment of a scrape. On the node's
// strand.
#pragma once

#include "coordinator/service/registry.h"
#include "coordinator/service/roll_call.h"
#include "core/telemetry/metrics.h"
#include "core/tree/hub.h"

namespace fluvial::coordinator {

class MemberGauges {
 public:
  // The registry, the hub and the roll call outlive the scrapes.
  MemberGauges(tree::Runtime& runtime, const Registry& registry, const tree::Hub& hub, const RollCall& roll_call);

 private:
  void measure();
  void measure_nodes();
  void measure_reports();
  void measure_detours();
  std::optional<WallTime> certificate_end(NodeId node) const;

  tree::Runtime& runtime_;
  const Registry& registry_;
  const tree::Hub& hub_;
  const RollCall& roll_call_;
  telemetry::Gauge sites_enrolled_;
  telemetry::Gauge aggregators_enrolled_;
  telemetry::Gauge sites_available_;
  telemetry::Gauge sites_without_workers_;
  telemetry::Gauge past_aggregator_count_;
  telemetry::Gauge held_twice_;
  telemetry::NamedGauges connected_;
  telemetry::NamedGauges certificate_ends_;
  telemetry::NamedGauges clock_offsets_;
  telemetry::NamedGauges past_aggregator_;
  telemetry::NamedGauges quarantined_;
  telemetry::Measuring measuring_;
};

// Where a site is whose update is not in, by what it reported last: a word of late_sites_total's label.
std::string_view phase_of(bool is_here, const std::optional<Activity>& activity);

}  // namespace fluvial::coordinator
