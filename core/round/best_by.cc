#include "core/round/best_by.h"

#include <algorithm>
#include <cmath>

namespace fluvial::round {
namespace {

constexpr std::size_t kMetricBytesMax = 64;  // as where metrics are read
constexpr std::string_view kLeast = ":min";
constexpr std::string_view kGreatest = ":max";

bool is_of_metric(char c) { return c > ' ' && c <= '~'; }

}  // namespace

bool BestBy::is_better(double value, std::optional<double> than) const {
  if (!std::isfinite(value)) return false;
  return !than || (is_highest ? value > *than : value < *than);
}

std::optional<double> BestBy::of(const Metrics& metrics) const {
  const auto found = metrics.find(metric);
  if (found == metrics.end() || !std::isfinite(found->second)) return std::nullopt;
  return found->second;
}

Result<std::optional<BestBy>> parse_best_by(std::string_view text) {
  if (text.empty()) return std::optional<BestBy>();
  BestBy by{.is_highest = text.ends_with(kGreatest)};
  if (by.is_highest || text.ends_with(kLeast)) text.remove_suffix(kLeast.size());
  if (text.empty() || text.size() > kMetricBytesMax || !std::ranges::all_of(text, is_of_metric)) {
    return Error{Code::kInvalidArgument, "expected a metric's name, as in test_loss:min or test_accuracy:max"};
  }
  by.metric = text;
  return std::optional(std::move(by));
}

}  // namespace fluvial::round
