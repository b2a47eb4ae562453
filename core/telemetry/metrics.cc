#include "core/telemetry/metrics.h"

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>
#include <prometheus/text_serializer.h>

#include <algorithm>
#include <mutex>
#include <utility>
#include <vector>

#include "core/base/check.h"
#include "core/telemetry/declared.h"
#include "core/telemetry/process.h"

namespace fluvial::telemetry {
namespace {

const std::vector<double> kSecondBuckets = {0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5,  1,
                                            2.5,   5,      10,    30,   60,    120,  300, 600,  1800, 3600};

}  // namespace

void Counter::add(double amount) const { counter_->Increment(amount); }
double Counter::value() const { return counter_->Value(); }
void Gauge::set(double value) const { gauge_->Set(value); }
void Gauge::add(double amount) const { gauge_->Increment(amount); }
double Gauge::value() const { return gauge_->Value(); }
void Histogram::observe(double seconds) const { histogram_->Observe(seconds); }

struct Metrics::Impl {
  Impl(Role r, std::string_view version);

  const Declaration& declared(std::string_view name, Kind kind) const {
    const Declaration* metric = find_declared(name, role);
    FLUVIAL_CHECK(metric != nullptr && metric->kind == kind, "a metric that is not declared: " + std::string(name));
    return *metric;
  }
  // The registry hands out what is there already for the same name.
  template <typename Builder>
  auto& family(Builder builder, const Declaration& metric) const {
    return builder.Name(served_name(metric.name, role)).Help(std::string(metric.help)).Register(registry);
  }
  auto& counters(const Declaration& metric) const { return family(prometheus::BuildCounter(), metric); }
  auto& gauges(const Declaration& metric) const { return family(prometheus::BuildGauge(), metric); }
  auto& histograms(const Declaration& metric) const { return family(prometheus::BuildHistogram(), metric); }

  void make_known();
  void make_known(const Declaration& metric, std::size_t label, Labels labels);

  Role role;
  mutable prometheus::Registry registry;
  std::mutex mutex;          // of one render() at a time: the CPU counter moves by differences
  std::mutex updates_mutex;  // a measurement does not wait for a render()
  std::vector<std::weak_ptr<const std::function<void()>>> updates;
  bool made_known = false;
  prometheus::Gauge* resident_bytes;
  prometheus::Counter* cpu_seconds;
  prometheus::Gauge* open_files;
};

Metrics::Impl::Impl(Role r, std::string_view version) : role(r) {
  const auto help = [this](const char* name) { return std::string(find_declared(name, role)->help); };
  const auto gauge = [&](const char* name) -> auto& {
    return prometheus::BuildGauge().Name(name).Help(help(name)).Register(registry);
  };
  resident_bytes = &gauge("process_resident_memory_bytes").Add({});
  open_files = &gauge("process_open_fds").Add({});
  const char* const cpu = "process_cpu_seconds_total";
  cpu_seconds = &prometheus::BuildCounter().Name(cpu).Help(help(cpu)).Register(registry).Add({});
  gauge("process_start_time_seconds").Add({}).Set(process_start_seconds());
  gauge("fluvial_build_info").Add({{"version", std::string(version)}, {"role", std::string(role_name(role))}}).Set(1);
}

void Metrics::Impl::make_known() {
  if (std::exchange(made_known, true)) return;
  for (const Subject& subject : declared_metrics()) {
    if (!subject.has_prefix) continue;
    for (const Declaration& metric : subject.metrics) {
      if (includes(metric.roles, role) && metric.is_closed() && metric.since.empty()) make_known(metric, 0, {});
    }
  }
}

// Each combination of the values of its labels from `label` on.
void Metrics::Impl::make_known(const Declaration& metric, std::size_t label, Labels labels) {
  if (label < metric.labels.size()) {
    for (const LabelValue& value : metric.labels[label].values) {
      if (!includes(value.roles, role)) continue;
      labels[std::string(metric.labels[label].name)] = value.text;
      make_known(metric, label + 1, labels);
    }
    return;
  }
  switch (metric.kind) {
    case Kind::kCounter: (void)counters(metric).Add(labels); return;
    case Kind::kGauge: (void)gauges(metric).Add(labels); return;
    case Kind::kHistogram: (void)histograms(metric).Add(labels, kSecondBuckets); return;
  }
}

Metrics::Metrics(Role role, std::string_view version) : impl_(std::make_unique<Impl>(role, version)) {}
Metrics::~Metrics() = default;
Role Metrics::role() const { return impl_->role; }

Counter Metrics::counter(std::string_view name, const Labels& labels) {
  return Counter(impl_->counters(impl_->declared(name, Kind::kCounter)).Add(labels));
}

Gauge Metrics::gauge(std::string_view name, const Labels& labels) {
  return Gauge(impl_->gauges(impl_->declared(name, Kind::kGauge)).Add(labels));
}

Histogram Metrics::histogram(std::string_view name, const Labels& labels) {
  return Histogram(impl_->histograms(impl_->declared(name, Kind::kHistogram)).Add(labels, kSecondBuckets));
}

void Metrics::remove(std::string_view name, Gauge gauge) {
  impl_->gauges(impl_->declared(name, Kind::kGauge)).Remove(gauge.gauge_);
}

Measuring Metrics::before_render(std::function<void()> update) {
  Measuring handle = std::make_shared<const std::function<void()>>(std::move(update));
  const std::lock_guard lock(impl_->updates_mutex);
  std::erase_if(impl_->updates, [](const auto& one) { return one.expired(); });
  impl_->updates.push_back(handle);
  return handle;
}

void Metrics::measure() {
  std::vector<std::weak_ptr<const std::function<void()>>> updates;
  {
    const std::lock_guard lock(impl_->updates_mutex);
    updates = impl_->updates;
  }
  for (const auto& update : updates) {
    if (const Measuring alive = update.lock()) (*alive)();
  }
}

std::string Metrics::render() const {
  const std::lock_guard lock(impl_->mutex);
  impl_->make_known();
  const ProcessUsage usage = process_usage();
  impl_->resident_bytes->Set(usage.resident_bytes);
  impl_->open_files->Set(usage.open_files);
  impl_->cpu_seconds->Increment(std::max(0.0, usage.cpu_seconds - impl_->cpu_seconds->Value()));
  return prometheus::TextSerializer().Serialize(impl_->registry.Collect());
}

bool NamedGauges::set(const Labels& labels, double value) {
  auto found = series_.find(labels);
  if (found == series_.end()) {
    if (series_.size() >= series_max_) return false;
    found = series_.emplace(labels, metrics_.gauge(name_, labels)).first;
  }
  found->second.set(value);
  return true;
}

void NamedGauges::replace(const std::map<Labels, double>& all) {
  std::erase_if(series_, [&](const auto& entry) {
    if (all.contains(entry.first)) return false;
    metrics_.remove(name_, entry.second);
    return true;
  });
  for (const auto& [labels, value] : all) (void)set(labels, value);
}

}  // namespace fluvial::telemetry
