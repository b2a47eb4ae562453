#include "core/telemetry/round_metrics.h"

namespace fluvial::telemetry {

RoundMetrics::RoundMetrics(Metrics& metrics)
    : rounds_committed(metrics.counter("rounds_committed_total")),
      attempts(metrics.counter("attempts_total")),
      contributions_counted(metrics.counter("contributions_total", {{"outcome", "counted"}})),
      updates_verified(metrics.counter("updates_verified_total")),
      merge_seconds(metrics.histogram("merge_seconds")),
      round(metrics.gauge("round")),
      participants(metrics.gauge("participants")),
      metrics_(&metrics) {}

void RoundMetrics::contribution_refused(std::string_view reason) const {
  metrics_->counter("contributions_refused_total", {{"reason", std::string(reason)}}).add();
}

RootMetrics::RootMetrics(Metrics& metrics)
    : rounds_opened(metrics.counter("rounds_opened_total")),
      contributions_late(metrics.counter("contributions_total", {{"outcome", "late"}})),
      contributions_forged(metrics.counter("contributions_forged_total")),
      contributions_stale(metrics.counter("contributions_stale_total")),
      staleness(metrics.counter("staleness_rounds_total")),
      step_norm(metrics.gauge("step_norm")),
      model_whole_bytes(metrics.gauge("model_whole_bytes")),
      model_down_bytes(metrics.gauge("model_down_bytes")),
      model_left_out_norm(metrics.gauge("model_left_out_norm")),
      round_seconds(metrics.histogram("round_seconds")),
      finalise_seconds(metrics.histogram("finalise_seconds")),
      commit_seconds(metrics.histogram("commit_seconds")),
      attempt_record_seconds(metrics.histogram("journal_record_seconds", {{"record", "attempt"}})),
      commit_record_seconds(metrics.histogram("journal_record_seconds", {{"record", "commit"}})),
      status_record_seconds(metrics.histogram("journal_record_seconds", {{"record", "status"}})),
      metrics_(&metrics) {}

void RootMetrics::counted(std::string_view site) const {
  metrics_->counter("site_contributions_total", {{"site", std::string(site)}}).add();
}

void RootMetrics::late(std::string_view phase) const {
  contributions_late.add();
  metrics_->counter("late_sites_total", {{"phase", std::string(phase)}}).add();
}

}  // namespace fluvial::telemetry
