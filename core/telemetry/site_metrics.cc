#include "core/telemetry/site_metrics.h"

namespace fluvial::telemetry {

SiteMetrics::SiteMetrics(Metrics& metrics)
    : updates_submitted(metrics.counter("updates_submitted_total")),
      updates_resent(metrics.counter("updates_resent_total")),
      outcomes_counted(metrics.counter("outcomes_total", {{"outcome", "counted"}})),
      outcomes_late(metrics.counter("outcomes_total", {{"outcome", "late"}})),
      outcomes_refused(metrics.counter("outcomes_total", {{"outcome", "refused"}})),
      residuals_dropped(metrics.counter("residuals_dropped_total")),
      update_norm(metrics.gauge("update_norm")),
      update_weight(metrics.gauge("update_weight")),
      residual_norm(metrics.gauge("residual_norm")),
      residual_age_rounds(metrics.gauge("residual_age_rounds")),
      residual_unspent_norm(metrics.gauge("residual_unspent_norm")),
      round(metrics.gauge("round")),
      model_version(metrics.gauge("model_version")),
      workers(metrics.gauge("workers")),
      training_seconds(metrics.counter("training_seconds_total")),
      training_share(metrics.gauge("training_share_ratio")),
      train_failures(metrics.counter("train_failures_total")),
      rounds_forbidden{metrics.counter("rounds_forbidden_total", {{"rule", "runs"}}),
                       metrics.counter("rounds_forbidden_total", {{"rule", "cohort"}}),
                       metrics.counter("rounds_forbidden_total", {{"rule", "hours"}})},
      fetch_seconds(metrics.histogram("fetch_seconds")),
      train_seconds(metrics.histogram("train_seconds")),
      encode_seconds(metrics.histogram("encode_seconds")),
      upload_seconds(metrics.histogram("upload_seconds")),
      gpu_memory_bytes(metrics.gauge("gpu_memory_bytes")),
      gpu_sums(metrics.counter("gpu_updates_total", {{"step", "sum"}})),
      gpu_encodings(metrics.counter("gpu_updates_total", {{"step", "encode"}})),
      gpu_sum_seconds(metrics.counter("gpu_seconds_total", {{"step", "sum"}})),
      gpu_encode_seconds(metrics.counter("gpu_seconds_total", {{"step", "encode"}})) {}

}  // namespace fluvial::telemetry
