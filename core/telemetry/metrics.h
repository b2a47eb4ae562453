// Metrics of one process in Prometheus' exposition format. A Metrics object is made by main() and passed in; there are
// no globals. Everything here is thread safe; handles are cheap copies that must not outlive their Metrics.
//
// Which metrics there are, and at which role, declared.h says: a name that is not declared there for this process'
// role, or of another kind, stops the process.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <string_view>

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
  friend class Metrics;
  prometheus::Gauge* gauge_;
};

// Of seconds, with the buckets that all durations here have: 1 ms to 1 h.
class Histogram {
 public:
  explicit Histogram(prometheus::Histogram& histogram) : histogram_(&histogram) {}
  void observe(double seconds) const;

 private:
  prometheus::Histogram* histogram_;
};

using Measuring = std::shared_ptr<const std::function<void()>>;

class Metrics {
 public:
  // Build info, start time and the process' own figures (memory, CPU, open files) come with it.
  Metrics(Role role, std::string_view version);
  ~Metrics();
  Metrics(const Metrics&) = delete;
  Metrics& operator=(const Metrics&) = delete;

  // By the name as it is declared: "rounds_committed_total" is served as fluvial_coordinator_rounds_committed_total.
  // The same name and labels again give the same series.
  Counter counter(std::string_view name, const Labels& labels = {});
  Gauge gauge(std::string_view name, const Labels& labels = {});
  Histogram histogram(std::string_view name, const Labels& labels = {});
  void remove(std::string_view name, Gauge gauge);  // it is served no more, and no handle of it may be used

  // To set gauges from state held elsewhere: `update` is called by each measure() until the handle is gone. The process
  // calls measure() on the node's strand before it renders; handles are dropped there.
  [[nodiscard]] Measuring before_render(std::function<void()> update);
  void measure();

  Role role() const;
  // Text exposition, version 0.0.4. From the first time on it has every declared series that is known beforehand, with
  // 0 where nothing was counted.
  std::string render() const;

  static constexpr std::string_view kContentType = "text/plain; version=0.0.4; charset=utf-8";

 private:
  struct Impl;
  std::unique_ptr<Impl> impl_;
};

// Gauges of one name whose labels are not known beforehand, such as members' names: at most `series_max` of them. Not
// thread safe.
class NamedGauges {
 public:
  static constexpr std::size_t kSeriesMax = 256;
  NamedGauges(Metrics& metrics, std::string_view name, std::size_t series_max = kSeriesMax)
      : metrics_(metrics), name_(name), series_max_(series_max) {}

  bool set(const Labels& labels, double value);  // false: there are too many others
  bool has(const Labels& labels) const { return series_.contains(labels); }
  void replace(const std::map<Labels, double>& all);  // those that are not among them are served no more

 private:
  Metrics& metrics_;
  std::string name_;
  std::size_t series_max_;
  std::map<Labels, Gauge> series_;
};

}  // namespace fluvial::telemetry
