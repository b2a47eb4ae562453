// What a site counts.
#pragma once

#include <array>

#include "core/telemetry/metrics.h"

namespace fluvial::telemetry {

class SiteMetrics {
 public:
  explicit SiteMetrics(Metrics& metrics);

  Counter updates_submitted;
  Counter updates_resent;
  Counter outcomes_counted;
  Counter outcomes_late;
  Counter outcomes_refused;
  Counter residuals_dropped;
  Gauge update_norm;
  Gauge update_weight;
  Gauge residual_norm;
  Gauge residual_age_rounds;
  Gauge residual_unspent_norm;
  Gauge round;
  Gauge model_version;
  Gauge workers;
  Counter training_seconds;
  Gauge training_share;
  Counter train_failures;
  std::array<Counter, 3> rounds_forbidden;  // by runs, cohort, hours
  Histogram fetch_seconds;
  Histogram train_seconds;
  Histogram encode_seconds;
  Histogram upload_seconds;
  Gauge gpu_memory_bytes;
  Counter gpu_sums;
  Counter gpu_encodings;
  Counter gpu_sum_seconds;
  Counter gpu_encode_seconds;
};

}  // namespace fluvial::telemetry
