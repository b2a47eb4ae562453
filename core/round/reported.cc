#include "core/round/reported.h"

#include <utility>

namespace fluvial::round {

Metrics mean_metrics(const ContributorSet& contributors) {
  std::map<std::string, std::pair<double, double>> sums;
  for (const auto& [site, entry] : contributors.entries()) {
    for (const auto& [name, value] : entry.metrics) {
      auto& [sum, weight] = sums[name];
      sum += value * static_cast<double>(entry.weight);
      weight += static_cast<double>(entry.weight);
    }
  }
  Metrics means;
  for (const auto& [name, sum] : sums) means[name] = sum.first / sum.second;
  return means;
}

Metrics settle_metrics(const Plan& plan, ContributorSet& contributors) {
  Metrics means = mean_metrics(contributors);
  if (!plan.metrics_by_site) contributors.forget_metrics();
  return means;
}

}  // namespace fluvial::round
