// By which metric a run's best model is kept: a plan's models_kept_best.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "core/base/result.h"
#include "core/round/contribution.h"

namespace fluvial::round {

struct BestBy {
  std::string metric;
  bool is_highest = false;  // the greatest value is the best, else the least
  bool operator==(const BestBy&) const = default;

  // A value that is not a finite number is never better, and none is better than its equal.
  bool is_better(double value, std::optional<double> than) const;
  std::optional<double> of(const Metrics& metrics) const;  // the metric, where it is there and finite
};

// "loss:min" takes the least value, "accuracy:max" the greatest. A name alone takes the least: journals hold such
// plans, which nobody may write any more (plan_written.h). An empty text: none.
Result<std::optional<BestBy>> parse_best_by(std::string_view text);

}  // namespace fluvial::round
