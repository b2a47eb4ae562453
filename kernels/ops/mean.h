// Fixed point's mean for processors whose division takes many instructions.
#pragma once

#include "kernels/ops/fixed.h"

namespace fluvial::kernels::ops {

// mean_of_sum without its division, but for few sums. `inverse_weight` is 1 / total_weight, rounded.
//
// Two roundings make the product differ from the exact quotient by less than 2^-52 of it, and from the rounded one by
// at most 3 units of the last of 53 bits. So both round to the same fp32 value unless the middle of two such values is
// as near: there the last 29 bits are a one and zeros. Below the normal fp32 values the middles are elsewhere.
FLUVIAL_HD float mean_by_inverse(std::int64_t sum, double inverse_scale, double total_weight, double inverse_weight) {
  constexpr std::uint64_t kBeyondFp32 = (std::uint64_t{1} << 29) - 1;
  constexpr std::uint64_t kMiddle = std::uint64_t{1} << 28;
  constexpr std::uint64_t kNear = 4;
  const double mean = static_cast<double>(sum) * inverse_scale * inverse_weight;
  const auto bits = __builtin_bit_cast(std::uint64_t, mean);
  const bool is_far = ((bits - kMiddle + kNear) & kBeyondFp32) > 2 * kNear;
  const bool is_normal = (mean < 0 ? -mean : mean) >= static_cast<double>(kMinNormal);
  if ((is_far && is_normal) || sum == 0) return static_cast<float>(mean);
  return mean_of_sum(sum, inverse_scale, total_weight);
}

}  // namespace fluvial::kernels::ops
