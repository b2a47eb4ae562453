// What workers report, by the names that they give it: the only label that comes from outside a federation's own
// programs. A name becomes a label of at most 64 characters of [A-Za-z0-9_.:/-], others are replaced by '_'; the first
// 32 names of a run are served, of them 16 that a single one of several reports, and what else comes is counted. Not
// thread safe.
#pragma once

#include <cstddef>
#include <map>
#include <string>

#include "core/telemetry/metrics.h"

namespace fluvial::telemetry {

class ReportedMetrics {
 public:
  static constexpr std::size_t kNamesMax = 32;
  ReportedMetrics(Metrics& metrics, std::string_view name);

  // `by`: how many have reported each; empty: there is only one. What is not among the values is served no more.
  void set(const std::map<std::string, double>& values, const std::map<std::string, std::size_t>& by = {});
  void forget();  // another run begins

 private:
  NamedGauges gauges_;
  Counter dropped_;
  std::map<std::string, std::string> names_;  // by label
  std::size_t names_of_one_ = 0;              // of them: when they came only one of several had them
};

std::string reported_label(std::string_view name);

}  // namespace fluvial::telemetry
