// Fixed point: the fp64 term of a contribution to int64, and the int64 sum to an fp32 mean.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

constexpr double kTermLimit = 0x1p62;       // |value * factor| stays at or below this
constexpr double kSmallTermLimit = 0x1p51;  // below this to_fixed_small is valid

// value * factor with factor = weight * 2^scale: 24 + 29 bits at most, so the product is exact.
FLUVIAL_HD double fixed_product(float value, double factor) { return static_cast<double>(value) * factor; }

// Half to even, for |term| < 2^63. Below 2^52 adding and subtracting 2^52 rounds to an integer; above, all are
// integers.
FLUVIAL_HD std::int64_t to_fixed(double term) {
  const double magnitude = term < 0 ? -term : term;
  const double shifted = (magnitude + 0x1p52) - 0x1p52;
  const double rounded = magnitude < 0x1p52 ? shifted : magnitude;
  return static_cast<std::int64_t>(term < 0 ? -rounded : rounded);
}

// The same for |term| < 2^51, in one addition: the low bits of term + 1.5 * 2^52 are the rounded integer.
FLUVIAL_HD std::int64_t to_fixed_small(double term) {
  return __builtin_bit_cast(std::int64_t, term + 0x1.8p52) - __builtin_bit_cast(std::int64_t, 0x1.8p52);
}

FLUVIAL_HD float mean_of_sum(std::int64_t sum, double inverse_scale, double total_weight) {
  return static_cast<float>(static_cast<double>(sum) * inverse_scale / total_weight);
}

// Two's complement addition that wraps, and whether it did (the sign differs from both operands').
FLUVIAL_HD std::int64_t wrapping_add(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) + static_cast<std::uint64_t>(b));
}
FLUVIAL_HD std::int64_t wrapping_subtract(std::int64_t a, std::int64_t b) {
  return static_cast<std::int64_t>(static_cast<std::uint64_t>(a) - static_cast<std::uint64_t>(b));
}
FLUVIAL_HD std::int64_t overflow_sign(std::int64_t a, std::int64_t b, std::int64_t sum) {
  return (a ^ sum) & (b ^ sum);
}

}  // namespace fluvial::kernels::ops
