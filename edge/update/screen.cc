#include "edge/update/screen.h"

#include <algorithm>
#include <cmath>
#include <limits>
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

Result<float> check_values(const round::Schema& schema, std::span<const float> update, std::uint64_t first,
                           double value_abs_max) {
  const Result<kernels::ScreenReport> report = kernels::screen(update, first);
  if (report.ok() && static_cast<double>(report->max_abs) <= value_abs_max) return report->max_abs;
  const auto bad = std::ranges::find_if(update, [&](float value) {
    return !std::isfinite(value) || std::fabs(static_cast<double>(value)) > value_abs_max;
  });
  FLUVIAL_CHECK(bad != update.end(), "the screen refused what is within its bounds");
  return unusable(schema, first + static_cast<std::uint64_t>(bad - update.begin()), *bad, value_abs_max);
}

Result<std::uint64_t> read_usable_residual(const store::Residual& residual, std::uint64_t first,
                                           std::span<float> into) {
  constexpr float kMost = std::numeric_limits<float>::max() / 2;  // a plan's value_abs_max is at most 1e9
  const Status read = residual.read(first, into);
  if (!read.ok() && read.error().code == Code::kDataLoss) {
    std::ranges::fill(into, 0.0F);
    return into.size();
  }
  FLUVIAL_TRY(read);
  if (const auto screened = kernels::screen(into); screened.ok() && screened->max_abs <= kMost) return 0;
  std::uint64_t changed = 0;
  for (float& value : into) {
    if (std::fabs(value) <= kMost) continue;
    value = std::isnan(value) ? 0.0F : std::clamp(value, -kMost, kMost);
    ++changed;
  }
  return changed;
}

}  // namespace fluvial::edge
