#include "core/telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <mutex>
#include <utility>

#include "core/telemetry/process.h"

namespace fluvial::telemetry {

void Counter::add(double amount) const { counter_->Increment(amount); }
double Counter::value() const { return counter_->Value(); }
void Gauge::set(double value) const { gauge_->Set(value); }
void Gauge::add(double amount) const { gauge_->Increment(amount); }
double Gauge::value() const { return gauge_->Value(); }
void Histogram::observe(double value) const { histogram_->Observe(value); }

struct Metrics::Impl {
  Impl(Role r, std::string_view version);
  std::string name(std::string_view what) const {
    return "fluvial_" + std::string(role_name(role)) + "_" + std::string(what);
  }

  Role role;
  mutable prometheus::Registry registry;
  mutable std::mutex mutex;  // of updates, and of one render() at a time: the CPU counter moves by differences
  std::vector<std::function<void()>> updates;
  prometheus::Gauge* resident_bytes;
  prometheus::Counter* cpu_seconds;
  prometheus::Gauge* open_files;
};

Metrics::Impl::Impl(Role r, std::string_view version) : role(r) {
  const auto gauge = [this](const char* gauge_name, const char* help) {
    return &prometheus::BuildGauge().Name(gauge_name).Help(help).Register(registry).Add({});
  };
  resident_bytes = gauge("process_resident_memory_bytes", "Resident memory");
  open_files = gauge("process_open_fds", "Open file descriptors");
  cpu_seconds = &prometheus::BuildCounter()
                     .Name("process_cpu_seconds_total")
                     .Help("User and system CPU time")
                     .Register(registry)
                     .Add({});
  gauge("process_start_time_seconds", "Start, in seconds since 1970")->Set(process_start_seconds());
  prometheus::BuildGauge()
      .Name("fluvial_build_info")
      .Help("1, with the version and role as labels")
      .Register(registry)
      .Add({{"version", std::string(version)}, {"role", std::string(role_name(role))}})
      .Set(1);
}

Metrics::Metrics(Role role, std::string_view version) : impl_(std::make_unique<Impl>(role, version)) {}
Metrics::~Metrics() = default;
Role Metrics::role() const { return impl_->role; }

// Registry and families hand out what is there already for the same name and labels.
Counter Metrics::counter(std::string_view what, std::string_view help, const Labels& labels) {
  return Counter(
      prometheus::BuildCounter().Name(impl_->name(what)).Help(std::string(help)).Register(impl_->registry).Add(labels));
}

Gauge Metrics::gauge(std::string_view what, std::string_view help, const Labels& labels) {
  return Gauge(
      prometheus::BuildGauge().Name(impl_->name(what)).Help(std::string(help)).Register(impl_->registry).Add(labels));
}

Histogram Metrics::histogram(std::string_view what, std::string_view help, const std::vector<double>& buckets,
                             const Labels& labels) {
  return Histogram(prometheus::BuildHistogram()
                       .Name(impl_->name(what))
                       .Help(std::string(help))
                       .Register(impl_->registry)
                       .Add(labels, buckets));
}

void Metrics::before_render(std::function<void()> update) {
  const std::lock_guard lock(impl_->mutex);
  impl_->updates.push_back(std::move(update));
}

std::string Metrics::render() const {
  const std::lock_guard lock(impl_->mutex);
  const ProcessUsage usage = process_usage();
  impl_->resident_bytes->Set(usage.resident_bytes);
  impl_->open_files->Set(usage.open_files);
  impl_->cpu_seconds->Increment(std::max(0.0, usage.cpu_seconds - impl_->cpu_seconds->Value()));
  for (const auto& update : impl_->updates) update();
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

namespace {

const std::vector<double> kSecondBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,  1,
                                            2.5,   5,      10,    30,   60,    120,  300, 600,  1800, 3600};

}  // namespace

Histogram seconds_histogram(Metrics& metrics, std::string_view what, std::string_view help) {
  return metrics.histogram(what, help, kSecondBuckets);
}

NodeMetrics::NodeMetrics(Metrics& metrics)
    : sessions_open(metrics.gauge("sessions_open", "Sessions now")),
      sessions_accepted(metrics.counter("sessions_accepted_total", "Sessions whose handshake was completed")),
      bytes_in(metrics.counter("received_bytes_total", "Bytes of frames received")),
      bytes_out(metrics.counter("sent_bytes_total", "Bytes of frames sent")),
      frames_in(metrics.counter("frames_received_total", "Frames received")),
      frames_out(metrics.counter("frames_sent_total", "Frames sent")),
      heartbeat_timeouts(metrics.counter("heartbeat_timeouts_total", "Sessions ended because the peer was silent")),
      reconnects(metrics.counter("reconnects_total", "Attempts to connect again to the parent")),
      outbox_bytes(metrics.gauge("outbox_bytes", "Bytes waiting to be sent")),
      metrics_(&metrics) {}

void NodeMetrics::session_refused(std::string_view reason) const {
  metrics_->counter("sessions_refused_total", "Connections refused", {{"reason", std::string(reason)}}).add();
}

void NodeMetrics::frame_refused(std::string_view reason) const {
  metrics_->counter("frames_refused_total", "Frames refused", {{"reason", std::string(reason)}}).add();
}

RoundMetrics::RoundMetrics(Metrics& metrics)
    : rounds_opened(metrics.counter("rounds_opened_total", "Rounds opened")),
      rounds_committed(metrics.counter("rounds_committed_total", "Rounds committed")),
      attempts(metrics.counter("attempts_total", "Attempts opened, first ones and repeated")),
      contributions_counted(
          metrics.counter("contributions_total", "Contributions by outcome", {{"outcome", "counted"}})),
      contributions_late(metrics.counter("contributions_total", "Contributions by outcome", {{"outcome", "late"}})),
      updates_verified(metrics.counter("updates_verified_total", "Updates that passed every check")),
      update_bytes(metrics.counter("update_bytes_total", "Encoded bytes of updates and partials received")),
      round_seconds(metrics.histogram("round_seconds", "From a round's opening to its commit", kSecondBuckets)),
      merge_seconds(metrics.histogram("merge_seconds", "Arithmetic of one round", kSecondBuckets)),
      commit_seconds(
          metrics.histogram("commit_seconds", "Model files and journal record of one round", kSecondBuckets)),
      round(metrics.gauge("round", "The round that is open, or the last one")),
      participants(metrics.gauge("participants", "Participants of the open round")),
      members_sites(metrics.gauge("members", "Nodes connected below this one", {{"role", "site"}})),
      members_aggregators(metrics.gauge("members", "Nodes connected below this one", {{"role", "aggregator"}})),
      staging_bytes(metrics.gauge("staging_bytes", "Memory that staged updates hold")),
      staging_spilled_bytes(metrics.gauge("staging_spilled_bytes", "Bytes of staged updates on disk")),
      metrics_(&metrics) {}

void RoundMetrics::contribution_refused(std::string_view reason) const {
  metrics_->counter("contributions_refused_total", "Contributions refused", {{"reason", std::string(reason)}}).add();
}

SiteMetrics::SiteMetrics(Metrics& metrics)
    : updates_submitted(metrics.counter("updates_submitted_total", "Updates sent for the first time")),
      updates_resent(metrics.counter("updates_resent_total", "Updates sent again")),
      outcomes_counted(metrics.counter("outcomes_total", "Outcomes of updates", {{"outcome", "counted"}})),
      outcomes_late(metrics.counter("outcomes_total", "Outcomes of updates", {{"outcome", "late"}})),
      outcomes_refused(metrics.counter("outcomes_total", "Outcomes of updates", {{"outcome", "refused"}})),
      residuals_dropped(
          metrics.counter("residuals_dropped_total",
                          "Residuals beyond the plan's bounds, or of a run that the next one does not continue")),
      residual_norm(metrics.gauge("residual_norm", "2-norm of the residual")),
      residual_age_rounds(metrics.gauge("residual_age_rounds", "Submissions since one was counted")),
      residual_unspent_norm(
          metrics.gauge("residual_unspent_norm", "2-norm of what the last run left, until another begins")),
      workers(metrics.gauge("workers", "Workers attached")),
      gpu_sums(metrics.counter("gpu_updates_total", "Updates made on GPUs, by step", {{"step", "sum"}})),
      gpu_encodings(metrics.counter("gpu_updates_total", "Updates made on GPUs, by step", {{"step", "encode"}})),
      train_seconds(metrics.histogram("train_seconds", "Local steps of one round", kSecondBuckets)),
      encode_seconds(metrics.histogram("encode_seconds", "Encoding of one update", kSecondBuckets)),
      upload_seconds(
          metrics.histogram("upload_seconds", "From an update's first frame to its receipt", kSecondBuckets)) {}

}  // namespace fluvial::telemetry
