#include "core/aggregate/scale.h"

#include <algorithm>
#include <cmath>

#include "core/round/contribution.h"
#include "kernels/fixed.h"

namespace fluvial::aggregate {
namespace {

double term_max(double value_abs_max) { return std::max(value_abs_max, 1.0); }

}  // namespace

Result<int> scale_for(const round::Plan& plan, std::uint64_t weight_sum) {
  const Result<int> bits =
      kernels::scale_bits(static_cast<int>(plan.fraction_bits), term_max(plan.value_abs_max), weight_sum);
  const int least = round::late_is_next(plan) ? round::kFactorBits : 0;  // so that an old update's probe is exact
  if (bits.ok() && *bits >= least) return bits;
  return Error{Code::kFailedPrecondition,
               "no room for an exact sum: lower value_abs_max or the sites' maximum weights"};
}

bool has_room(double value_abs_max, int scale_bits, std::uint64_t weight_sum) {
  const double sum_max = std::ldexp(term_max(value_abs_max) * static_cast<double>(weight_sum), scale_bits);
  return weight_sum < kernels::kWeightSumEnd && sum_max <= kernels::kSumMax;
}

}  // namespace fluvial::aggregate
