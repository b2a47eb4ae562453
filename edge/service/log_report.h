// A site's report as log lines, metrics and the counts of /status.
#pragma once

#include <cstdint>
#include <set>
#include <string>

#include "core/telemetry/log.h"
#include "core/telemetry/node_metrics.h"
#include "core/telemetry/reported_metrics.h"
#include "core/telemetry/site_metrics.h"
#include "edge/logic/busy_time.h"
#include "edge/service/site_report.h"

namespace fluvial::edge {

// What /status tells beside the counts.
struct SiteStatus {
  std::string name;
  NodeId node;
  bool connected = false;
  std::string parent;
  std::string parent_address;
  RunId run;
  RoundId round;
  std::optional<round::ModelRef> model;
  std::uint64_t update_bytes_sent = 0;
  std::string_view doing;
  RoundId pending_round;
  std::size_t workers = 0;
  std::size_t gpus = 0;
};

class LogReport final : public SiteReport {
 public:
  // `alone`: else other sites report to the same metrics. Then counters, histograms, workers and the memory on GPUs are
  // of all of them together, and the other gauges, which tell of one site's last round, stay at 0.
  LogReport(telemetry::Metrics& metrics, telemetry::Logger log, const Clock& clock, bool alone = true);

  std::string status_json(const SiteStatus& status) const;

  void parent_down(const Error& why, bool stopping) override;
  void round_opened(const Offer& offer) override;
  void forbidden(const Offer& offer, const Objection& objection) override;
  void round_committed(const wire::Commit& commit, const Verdict& verdict, RoundId newest) override;
  void run_state(RunId run, std::string_view state, std::string_view reason) override;
  void receipt(RunId run, RoundId round, const Status& verdict) override;
  void outcome_told(const Pending& about, Outcome outcome) override;

  void workers(std::size_t count) override;
  void working(bool working) override;
  void fetched(double seconds) override;
  void model_held(const round::ModelRef& model) override;
  void training(const Offer& offer) override;
  void trained(const Offer& offer, std::size_t workers, std::uint32_t weight, double seconds) override;
  void train_failed(const Offer& offer, const Error& error) override;
  void encoded(const store::PendingInfo& info, double seconds) override;
  void pass_encoded(const store::PendingInfo& info) override;
  void pass_scaled(const Offer& offer, float factor) override;
  void not_encoded(const Offer& offer, const Error& error) override;
  void waits_for_room(const Offer& offer, const Error& error) override;
  void folded(const Offer& offer, const store::Carried& carried, bool run_over) override;
  void not_folded(const Offer& offer, const Error& error) override;
  void last_model_missing(RunId run, RoundId round) override;
  void gpus_used(const SiteGpus::Counts& so_far) override;

  void found(const store::PendingInfo& info) override;
  void sending(const Send& effect) override;
  void sent(const store::PendingInfo& info, bool again, double seconds) override;
  void resolved(const Pending& pending, Outcome outcome, bool run_over) override;
  void not_written(const Pending& pending, Outcome outcome, const Error& error) override;

  void residual(RunId run, RoundId round, const store::Carried& carried) override;
  void residual_lost(RunId run, RoundId round, std::uint64_t values) override;
  void unspent(RunId run, const std::vector<store::Unspent>& unspent) override;
  void run_complete(RunId run, const Result<store::ResidualInfo>& unspent) override;

  void history_refused(const Error& error) override;
  void history_not_written(const Error& error) override;
  void put_aside(const store::PutAside& aside) override;
  void history_entered(const round::Lineage& lineage) override;

  void failed(std::string_view what, const Error& error) override;

 private:
  telemetry::Logger log_of(RunId run, RoundId round) const;
  void count(Outcome outcome);
  void say_not_finite(const telemetry::Logger& log, const round::Metrics& metrics);
  void count_training();
  void show(telemetry::Gauge gauge, double value) const;  // of this site's last round

  telemetry::Logger log_;
  const Clock& clock_;
  const bool alone_;
  telemetry::SiteMetrics metrics_;
  telemetry::EdgeBytes bytes_;
  telemetry::ReportedMetrics training_metrics_;
  RunId run_;                         // that they are of
  std::set<std::string> not_finite_;  // of this run, metrics that were NaN or infinite
  BusyTime training_;
  double training_counted_s_ = 0;
  std::size_t workers_ = 0;
  SiteGpus::Counts on_gpus_;
  std::uint64_t update_bytes_fp32_ = 0;  // what the submissions sent would have been, uncompressed
  std::uint64_t updates_submitted_ = 0;
  std::uint64_t counted_ = 0;
  std::uint64_t late_ = 0;
  std::uint64_t refused_ = 0;
  double residual_norm_ = 0;
  telemetry::Measuring measuring_;
};

}  // namespace fluvial::edge
