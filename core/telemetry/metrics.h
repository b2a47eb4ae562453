// Metrics of one process in Prometheus' exposition format. A Metrics object is made by main() and passed in; there are
// no globals. Everything here is thread safe; handles are cheap copies that must not outlive their Metrics.
//
// Names: fluvial_<role>_<what>_<unit or total>; docs/operations/metrics.md lists them.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/ids.h"

namespace prometheus {
class Counter;
class Gauge;
class Histogram;
}  // namespace prometheus

namespace fluvial::telemetry {

using Labels = std::map<std::string, std::string>;

class Counter {
 public:
  explicit Counter(prometheus::Counter& counter) : counter_(&counter) {}
  void add(double amount = 1) const;  // at least 0
  double value() const;

 private:
  prometheus::Counter* counter_;
};

class Gauge {
 public:
  explicit Gauge(prometheus::Gauge& gauge) : gauge_(&gauge) {}
  void set(double value) const;
  void add(double amount) const;
  double value() const;

 private:
  prometheus::Gauge* gauge_;
};

class Histogram {
 public:
  explicit Histogram(prometheus::Histogram& histogram) : histogram_(&histogram) {}
  void observe(double value) const;

 private:
  prometheus::Histogram* histogram_;
};

class Metrics {
 public:
  // Build info, start time and the process' own figures (memory, CPU, open files) come with it.
  Metrics(Role role, std::string_view version);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // `what` without prefix: "rounds_committed_total" becomes fluvial_coordinator_rounds_committed_total. The same name
  // and labels again give the same series.
  Counter counter(std::string_view what, std::string_view help, const Labels& labels = {});
  Gauge gauge(std::string_view what, std::string_view help, const Labels& labels = {});
  Histogram histogram(std::string_view what, std::string_view help, const std::vector<double>& buckets,
                      const Labels& labels = {});
  // Called by each render(), before it reads: to set gauges from state held elsewhere. It must be thread safe.
  void before_render(std::function<void()> update);

  Role role() const;
  std::string render() const;  // text exposition, version 0.0.4

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// A histogram with the buckets that all durations here have, 1 ms to 1 h.
Histogram seconds_histogram(Metrics& metrics, std::string_view what, std::string_view help);

// What every node counts about its sessions. Series by reason are made at first use.
class NodeMetrics {
 public:
  explicit NodeMetrics(Metrics& metrics);

  Gauge sessions_open;
  Counter sessions_accepted;
  Counter bytes_in;
  Counter bytes_out;
  Counter frames_in;
  Counter frames_out;
  Counter heartbeat_timeouts;
  Counter reconnects;
  Gauge outbox_bytes;
  void session_refused(std::string_view reason) const;  // a closed list of words, not a peer's text
  void frame_refused(std::string_view reason) const;

 private:
  Metrics* metrics_;
};

// What the round machine counts, at the root and at inner nodes.
class RoundMetrics {
 public:
  explicit RoundMetrics(Metrics& metrics);

  Counter rounds_opened;
  Counter rounds_committed;
  Counter attempts;
  Counter contributions_counted;
  Counter contributions_late;
  Counter updates_verified;
  Counter update_bytes;  // encoded, received
  Histogram round_seconds;
  Histogram merge_seconds;
  Histogram commit_seconds;  // model files and journal
  Gauge round;
  Gauge participants;
  Gauge members_sites;
  Gauge members_aggregators;
  Gauge staging_bytes;
  Gauge staging_spilled_bytes;
  void contribution_refused(std::string_view reason) const;  // a Code's name

 private:
  Metrics* metrics_;
};

// What a site counts.
class SiteMetrics {
 public:
  explicit SiteMetrics(Metrics& metrics);

  Counter updates_submitted;
  Counter updates_resent;
  Counter outcomes_counted;
  Counter outcomes_late;
  Counter outcomes_refused;
  Counter residuals_dropped;
  Gauge residual_norm;
  Gauge residual_age_rounds;
  Gauge residual_unspent_norm;
  Gauge workers;
  Counter gpu_sums;
  Counter gpu_encodings;
  Histogram train_seconds;
  Histogram encode_seconds;
  Histogram upload_seconds;
};

}  // namespace fluvial::telemetry
