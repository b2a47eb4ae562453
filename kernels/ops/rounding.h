// Rounding to the whole multiples of a block's scale, which int8 and int4 send. Only IEEE multiplication and addition
// and integer arithmetic, so the bits are the same everywhere.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// Stochastic rounding sees a value as a whole number of units of 2^-14 scales.
constexpr int kFineBits = 14;
constexpr float kFineUnits = 0x1p14F;
// Scales are at least this, so that kFineUnits / scale is finite.
constexpr float kScaleMin = 0x1p-112F;

// amax / most for a block whose greatest magnitude is finite; 0 for a zero block. At least kScaleMin, and such that
// most * scale is finite.
FLUVIAL_HD float block_scale(std::uint32_t amax_bits, float most) {
  if (amax_bits == 0) return 0.0F;
  float scale = bits_float(amax_bits) / most;
  if (scale < kScaleMin) scale = kScaleMin;
  if (magnitude_bits(most * scale) >= kInfinityBits) scale = bits_float(float_bits(scale) - 1);
  return scale;
}

// x to the nearest integer, half to even, for |x| <= 2^22.
FLUVIAL_HD std::int32_t nearest_int(float x) {
  return static_cast<std::int32_t>(float_bits(x + 0x1.8p23F)) - static_cast<std::int32_t>(0x4b400000);
}

// With inverse = 1 / scale. The quotient is at most 127 * 2^-23 < 2^-16 from value / scale, so |error| < (1/2 + 2^-15)
// scales, and the code of the greatest magnitude is the greatest code.
FLUVIAL_HD std::int32_t round_nearest(float value, float inverse) { return nearest_int(value * inverse); }

// With fine_inverse = 2^14 / scale: the value in units, rounded to nearest, plus 14 random bits, without the lowest 14
// bits. Up with the probability of the fraction.
//
// |error| < scale: up to 127 scales the roundings of fine_inverse, of the product and of what is decoded come together
// to less than 127 * 2^14 * (2^-24 + 2^-24 + 2^-24) < 0.38 of a unit. So a value seen beyond a whole multiple of the
// scale is, by more than the decoder rounds, and the other multiple is less than a scale away. The value that the
// rounding is unbiased for is less than one unit from the true one. The greatest magnitude is seen at most 0.38 of a
// unit above its multiple, so no code is beyond the greatest (lowered scales included: a test goes through all).
FLUVIAL_HD std::int32_t round_stochastic(float value, float fine_inverse, std::uint16_t random) {
  const std::int32_t units = nearest_int(value * fine_inverse);
  return (units + static_cast<std::int32_t>(random >> (16 - kFineBits))) >> kFineBits;
}

}  // namespace fluvial::kernels::ops
