// What a committed round keeps of what its workers reported.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>

#include "core/round/contribution.h"
#include "core/round/plan.h"

namespace fluvial::round {

// A metric beyond it counts as infinite: no sum of such values overflows, whatever their weights.
inline constexpr double kMetricAbsMax = 1e100;
bool counts(double metric);  // in means: it is finite, and within that bound

bool is_metric_name(std::string_view name);  // 1 to 64 printable ASCII characters, no blanks

// Each metric's mean over those that report a value that counts, by weight; NaN where nobody does.
class MetricMeans {
 public:
  void add(const Metrics& metrics, std::uint64_t weight);
  Metrics means() const;

 private:
  struct Sum {
    double value = 0;
    double weight = 0;
  };
  std::map<std::string, Sum> sums_;
};

// Of those contributors, weighted as their updates are. A metric that nobody has a value of that counts has no mean.
Metrics mean_metrics(const ContributorSet& contributors);

// The means, and what else is kept: takes the sites' own metrics out of the set where the plan's metrics_by_site is
// false. Journal, admin API and streams have what is in the set afterwards, and no more.
Metrics settle_metrics(const Plan& plan, ContributorSet& contributors);

}  // namespace fluvial::round
