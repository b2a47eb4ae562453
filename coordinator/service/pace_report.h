// What people are shown of the sites' pace: metrics, a log line when a site becomes a straggler or stops being one, and
// the figures in the admin API's nodes. On the node's strand.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <set>
#include <string>

#include "core/round/pace.h"
#include "core/telemetry/log.h"
#include "core/telemetry/metrics.h"

namespace fluvial::coordinator {

class PaceReport {
 public:
  using NameOf = std::function<std::string(SiteId)>;
  PaceReport(telemetry::Metrics& metrics, telemetry::Logger log, NameOf name_of);

  void round_opened(Duration soft_deadline) const;
  // After the machine has taken note of the round.
  void round_closed(const round::Pace& pace, const round::ContributorSet& contributors);

 private:
  telemetry::Logger log_;
  NameOf name_of_;
  telemetry::Histogram site_round_seconds_;
  telemetry::Gauge stragglers_count_;
  telemetry::Gauge soft_deadline_seconds_;
  std::set<SiteId> stragglers_;
  std::set<SiteId> scored_;  // were stragglers since the start
  telemetry::NamedGauges scores_;
};

boost::json::object pace_object(const round::SitePace& pace);  // durations in seconds

}  // namespace fluvial::coordinator
