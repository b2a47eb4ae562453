#include "core/round/reported.h"

#include <algorithm>
#include <cmath>

namespace fluvial::round {

bool counts(double metric) { return std::abs(metric) <= kMetricAbsMax; }  // false for NaN as well

bool is_metric_name(std::string_view name) {
  constexpr std::size_t kBytesMax = 64;
  const bool fits = !name.empty() && name.size() <= kBytesMax;
  return fits && std::ranges::all_of(name, [](char c) { return c > ' ' && c <= '~'; });
}

void MetricMeans::add(const Metrics& metrics, std::uint64_t weight) {
  for (const auto& [name, value] : metrics) {
    Sum& sum = sums_[name];
    if (!counts(value)) continue;
    sum.value += value * static_cast<double>(weight);
    sum.weight += static_cast<double>(weight);
  }
}

Metrics MetricMeans::means() const {
  Metrics means;
  for (const auto& [name, sum] : sums_) means[name] = sum.value / sum.weight;
  return means;
}

Metrics mean_metrics(const ContributorSet& contributors) {
  MetricMeans means;
  for (const auto& [site, entry] : contributors.entries()) means.add(entry.metrics, entry.weight);
  Metrics all = means.means();
  std::erase_if(all, [](const auto& metric) { return !counts(metric.second); });
  return all;
}

Metrics settle_metrics(const Plan& plan, ContributorSet& contributors) {
  Metrics means = mean_metrics(contributors);
  if (!plan.metrics_by_site) contributors.forget_metrics();
  return means;
}

}  // namespace fluvial::round
