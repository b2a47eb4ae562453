#include "core/telemetry/reported_metrics.h"

#include <algorithm>

namespace fluvial::telemetry {
namespace {

constexpr std::size_t kLabelBytesMax = 64;
constexpr std::size_t kNamesOfOneMax = ReportedMetrics::kNamesMax / 2;  // the others' names find room
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

void ReportedMetrics::set(const std::map<std::string, double>& values, const std::map<std::string, std::size_t>& by) {
  std::map<Labels, double> served;
  const bool are_several = std::ranges::any_of(by, [](const auto& name) { return name.second > 1; });
  for (const auto& [name, value] : values) {
    const std::string label = reported_label(name);
    const auto reporters = by.find(name);
    const bool is_of_one = are_several && reporters != by.end() && reporters->second == 1;
    if (names_.size() < kNamesMax && (!is_of_one || names_of_one_ < kNamesOfOneMax)) {
      if (names_.emplace(label, name).second && is_of_one) ++names_of_one_;
    }
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
  names_of_one_ = 0;
  gauges_.replace({});
}

}  // namespace fluvial::telemetry
