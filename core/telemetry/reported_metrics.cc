#include "core/telemetry/reported_metrics.h"

#include <algorithm>

namespace fluvial::telemetry {
namespace {

constexpr std::size_t kLabelBytesMax = 64;
constexpr std::string_view kPunctuation = "_.:/-";

bool may_stay(char c) {
  return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || (c >= '0' && c <= '9') ||
         kPunctuation.find(c) != std::string_view::npos;
}

}  // namespace

std::string reported_label(std::string_view name) {
  std::string label(name.substr(0, kLabelBytesMax));
  std::ranges::replace_if(label, [](char c) { return !may_stay(c); }, '_');
  return label;
}

ReportedMetrics::ReportedMetrics(Metrics& metrics, std::string_view name)
    : gauges_(metrics, name, kNamesMax), dropped_(metrics.counter("reported_metrics_dropped_total")) {}

void ReportedMetrics::set(const std::map<std::string, double>& values) {
  std::map<Labels, double> served;
  for (const auto& [name, value] : values) {
    const std::string label = reported_label(name);
    if (names_.size() < kNamesMax) names_.emplace(label, name);
    const auto known = names_.find(label);
    if (known != names_.end() && known->second == name) {
      served[{{"name", label}}] = value;
    } else {
      dropped_.add();
    }
  }
  gauges_.replace(served);
}

void ReportedMetrics::forget() {
  names_.clear();
  gauges_.replace({});
}

}  // namespace fluvial::telemetry
