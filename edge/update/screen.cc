#include "edge/update/screen.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

Error unusable(const round::Schema& schema, std::uint64_t coordinate, float value, double value_abs_max) {
  const std::string what = round::value_name(schema, coordinate) + " is " + std::to_string(value);
  if (!std::isfinite(value)) return {Code::kDataLoss, what + " after training, expected a finite number"};
  return {Code::kDataLoss, what + ", beyond the plan's value_abs_max of " + std::to_string(value_abs_max)};
}

}  // namespace

Status check_values(const round::Schema& schema, std::span<const float> p, std::uint64_t first, double value_abs_max) {
  const Result<kernels::ScreenReport> report = kernels::screen(p, first);
  if (report.ok() && static_cast<double>(report->max_abs) <= value_abs_max) return {};
  const auto bad = std::ranges::find_if(
      p, [&](float value) { return !std::isfinite(value) || std::fabs(static_cast<double>(value)) > value_abs_max; });
  FLUVIAL_CHECK(bad != p.end(), "the screen refused what is within its bounds");
  return unusable(schema, first + static_cast<std::uint64_t>(bad - p.begin()), *bad, value_abs_max);
}

}  // namespace fluvial::edge
