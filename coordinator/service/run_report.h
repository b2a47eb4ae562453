// What people are told of the runs: log lines, metrics, and the lines of whoever watches (feed.h). On the node's
// strand.
#pragma once

#include <functional>
#include <map>
#include <set>
#include <string>

#include "coordinator/service/feed.h"
#include "coordinator/service/json.h"
#include "coordinator/service/pace_report.h"
#include "coordinator/service/run_observer.h"
#include "core/telemetry/reported_metrics.h"
#include "core/telemetry/round_metrics.h"

namespace fluvial::coordinator {

class RunReport : public RunObserver {
 public:
  RunReport(telemetry::Metrics& metrics, telemetry::Logger log, Feed& feed, NameOf name_of);

  // Where a site that is late is just now: a word of `late_sites_total` (docs/operations/metrics.md).
  void say_where_by(std::function<std::string_view(SiteId)> where) { where_ = std::move(where); }
  // While it says so of a run that run's end is held back: the last evaluation comes first (Feed::release_unless).
  void while_evaluating(std::function<bool(RunId)> evaluating) { evaluating_ = std::move(evaluating); }
  void when_taken_up(std::function<void(const RunMachine&)> taken_up) { taken_up_ = std::move(taken_up); }
  void when_over(std::function<void(RunId, RunStatus)> over) { over_ = std::move(over); }

  void run_taken_up(const RunMachine& machine) override;
  void status_told(RunId run, RunStatus status, const std::string& reason) override;
  void status_not_recorded(RunId run, RunStatus status, const Error& error) override;
  void attempt_opened(const round::AttemptRecord& attempt, Duration soft_deadline) override;
  void expects(const RunMachine& machine) override;
  void pass_over(const Reduce& effect, const round::AttemptRecord& attempt, const NamedVector& mean,
                 Duration took) override;
  void site_refused(const round::AttemptRecord& attempt, const round::Refusal& refusal) override;
  void travels_whole(const round::ModelRef& model, const std::string& why) override;
  void sum_given_up(const round::AttemptRecord& attempt, NodeId child, const Error& error) override;
  void step_failed(const round::AttemptRecord& attempt, DiskPart part, const Error& error) override;
  void committing(const store::CommitRow& row, const NextModel& next) override;
  void committed(const store::CommitRow& row, const round::Pace& pace) override;
  void took(Work work, Duration time) override;
  void evaluated(const round::Metrics& metrics) { evaluation_metrics_.set(metrics); }
  void members_changed(std::size_t sites, std::size_t aggregators) override;
  void sent_away(NodeId node, const Error& reason) override;
  void contradictions_not_shown(NodeId by, const round::Refusal& first, const Error& why, std::size_t count) override;
  void quarantined(SiteId site, const std::string& reason) override;
  void quarantine_not_recorded(SiteId site, const Error& error) override;
  void quarantine_counted(std::size_t sites) override;

 private:
  telemetry::Logger round_log(const round::AttemptRecord& attempt) const;

  telemetry::Logger log_;
  Feed& feed_;
  NameOf name_of_;
  telemetry::RoundMetrics counts_;
  telemetry::RootMetrics root_counts_;
  telemetry::Gauge members_sites_;
  telemetry::Gauge members_aggregators_;
  telemetry::Gauge quarantined_;
  telemetry::Counter not_shown_;
  telemetry::ReportedMetrics training_metrics_;
  telemetry::ReportedMetrics evaluation_metrics_;
  PaceReport pace_report_;
  std::function<bool(RunId)> evaluating_ = [](RunId) { return false; };
  std::function<void(const RunMachine&)> taken_up_;
  std::function<void(RunId, RunStatus)> over_;
  std::function<std::string_view(SiteId)> where_;
  // Of the round that is being committed.
  double step_norm_ = 0;
  std::uint64_t model_down_bytes_ = 0;
  double model_left_out_norm_ = 0;
  std::map<SiteId, round::Expected> expected_;  // as was said
  std::set<SiteId> uncounted_;                  // likewise
};

}  // namespace fluvial::coordinator
