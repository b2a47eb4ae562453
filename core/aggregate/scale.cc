#include "core/aggregate/scale.h"

#include <algorithm>
#include <cmath>

#include "core/base/format.h"
#include "core/round/contribution.h"
#include "kernels/fixed.h"
#include "kernels/ring.h"

namespace fluvial::aggregate {
namespace {

double term_max(double value_abs_max) { return std::max(value_abs_max, 1.0); }

// The least that a plan's scale may be, so that the probe of an old update is exact.
int least_scale(const round::Plan& plan) { return round::late_is_next(plan) ? round::kFactorBits : 0; }

}  // namespace

std::optional<int> whole_scale(const round::Plan& plan) {
  const Result<kernels::CodecSpec> spec = kernels::parse_codec(plan.codec);
  if (!spec.ok()) return std::nullopt;
  const bool votes = spec->kind == kernels::CodecKind::kSign && spec->vote;
  if (!votes && spec->kind != kernels::CodecKind::kRing) return std::nullopt;
  const int steps = votes ? 0 : std::max(kernels::ring_fraction_bits(*spec), 0);
  return steps + least_scale(plan);
}

Result<int> scale_for(const round::Plan& plan, std::uint64_t weight_sum) {
  if (const std::optional<int> whole = whole_scale(plan)) {
    if (weight_sum >= 1 && has_room(plan.value_abs_max, *whole, weight_sum)) return *whole;
    return Error{Code::kFailedPrecondition,
                 format_text("no room for an exact sum in {}'s steps of 2^-{}: lower the sites' maximum weights or "
                             "value_abs_max, or give ring fewer bits or a larger max",
                             plan.codec, *whole)};
  }
  const Result<int> bits =
      kernels::scale_bits(static_cast<int>(plan.fraction_bits), term_max(plan.value_abs_max), weight_sum);
  if (bits.ok() && *bits >= least_scale(plan)) return bits;
  return Error{Code::kFailedPrecondition,
               "no room for an exact sum: lower value_abs_max or the sites' maximum weights"};
}

bool has_room(double value_abs_max, int scale_bits, std::uint64_t weight_sum) {
  const double sum_max = std::ldexp(term_max(value_abs_max) * static_cast<double>(weight_sum), scale_bits);
  return weight_sum < kernels::kWeightSumEnd && sum_max <= kernels::kSumMax;
}

}  // namespace fluvial::aggregate
