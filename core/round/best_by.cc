#include "core/round/best_by.h"

#include "core/round/reported.h"

namespace fluvial::round {
namespace {

constexpr std::string_view kLeast = ":min";
constexpr std::string_view kGreatest = ":max";

}  // namespace

bool BestBy::is_better(double value, std::optional<double> than) const {
  if (!counts(value)) return false;
  return !than || (is_highest ? value > *than : value < *than);
}

std::optional<double> BestBy::of(const Metrics& metrics) const {
  const auto found = metrics.find(metric);
  if (found == metrics.end() || !counts(found->second)) return std::nullopt;
  return found->second;
}

Result<std::optional<BestBy>> parse_best_by(std::string_view text) {
  if (text.empty()) return std::optional<BestBy>();
  BestBy by{.is_highest = text.ends_with(kGreatest)};
  if (by.is_highest || text.ends_with(kLeast)) text.remove_suffix(kLeast.size());
  if (!is_metric_name(text)) {
    return Error{Code::kInvalidArgument, "expected a metric's name, as in test_loss:min or test_accuracy:max"};
  }
  by.metric = text;
  return std::optional(std::move(by));
}

}  // namespace fluvial::round
