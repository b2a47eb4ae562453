// What people are shown of the sites' pace: metrics, a log line when a site becomes a straggler or stops being one, and
// the figures in the admin API's nodes. On the node's strand.
#pragma once

#include <boost/json/object.hpp>
#include <functional>
#include <map>
#include <set>
#include <string>

#include "core/round/pace.h"
#include "core/telemetry/log.h"
#include "core/telemetry/metrics.h"

namespace fluvial::coordinator {

class PaceReport {
 public:
  // Series with a site's name: for the first so many that become stragglers. The histogram has everybody.
  static constexpr std::size_t kSitesMax = 256;

  using NameOf = std::function<std::string(SiteId)>;
  PaceReport(telemetry::Metrics& metrics, telemetry::Logger log, NameOf name_of);

  void round_opened(Duration soft_deadline) const;
  // After the machine has taken note of the round.
  void round_closed(const round::Pace& pace, const round::ContributorSet& contributors);

 private:
  void set_score(SiteId site, double score);

  telemetry::Metrics& metrics_;
  telemetry::Logger log_;
  NameOf name_of_;
  telemetry::Histogram site_round_seconds_;
  telemetry::Gauge stragglers_count_;
  telemetry::Gauge soft_deadline_seconds_;
  std::set<SiteId> stragglers_;
  std::map<SiteId, telemetry::Gauge> scores_;
};

boost::json::object pace_object(const round::SitePace& pace);  // durations in seconds

}  // namespace fluvial::coordinator
