// The open round at one parent as gauges, from its state at the moment of a scrape. On the node's strand.
#pragma once

#include <functional>

#include "core/base/clock.h"
#include "core/round/gather.h"
#include "core/store/staging.h"
#include "core/telemetry/metrics.h"

namespace fluvial::tree {

class RoundGauges {
 public:
  explicit RoundGauges(telemetry::Metrics& metrics);

  struct Round {
    AttemptId attempt;  // 0: no round is open, and the rest says nothing
    Duration age{};
    std::uint32_t pass = 0;  // index
  };
  // `is_here`: connected, however deep.
  void measure(const Round& open, const round::Gather& gather, const std::function<bool(SiteId)>& is_here) const;
  void measure(const store::StagingBudget& budget, std::size_t lane_tasks) const;

 private:
  telemetry::Gauge attempt_;
  telemetry::Gauge pass_;
  telemetry::Gauge age_seconds_;
  telemetry::Gauge in_;
  telemetry::Gauge awaited_;
  telemetry::Gauge away_;
  telemetry::Gauge refused_;
  telemetry::Gauge missing_;
  telemetry::Gauge staging_bytes_;
  telemetry::Gauge staging_limit_bytes_;
  telemetry::Gauge staging_spilled_bytes_;
  telemetry::Gauge lane_tasks_;
};

}  // namespace fluvial::tree
