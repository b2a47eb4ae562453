// The active run as gauges, from its state at the moment of a scrape. On the node's strand.
#pragma once

#include <map>

#include "coordinator/logic/pause_cause.h"
#include "coordinator/service/run_service.h"
#include "core/telemetry/metrics.h"

namespace fluvial::coordinator {

class RunGauges {
 public:
  RunGauges(telemetry::Metrics& metrics, const RunService& runs);  // which outlives the scrapes

 private:
  void measure() const;
  void measure_plan(const RunMachine* machine) const;

  const RunService& runs_;
  std::map<RunStatus, telemetry::Gauge> states_;
  std::map<PauseCause, telemetry::Gauge> causes_;
  telemetry::Gauge run_;
  telemetry::Gauge waits_for_sites_;
  telemetry::Gauge rounds_planned_;
  telemetry::Gauge model_version_;
  telemetry::Gauge quorum_;
  telemetry::Gauge participants_needed_;
  telemetry::Gauge hard_deadline_seconds_;
  telemetry::Measuring measuring_;
};

}  // namespace fluvial::coordinator
