// Whole multiples of a public step, a power of two that the plan gives: what codec ring sends. Only IEEE multiplication
// and addition and integer arithmetic, so the bits are the same everywhere.
#pragma once

#include "kernels/ops/rounding.h"

namespace fluvial::kernels::ops {

constexpr std::uint32_t kRingBitsMin = 2;
constexpr std::uint32_t kRingBitsMax = 24;

// The greatest code of `bits` bits; the least is its negative.
FLUVIAL_HD std::int32_t ring_most(std::uint32_t bits) { return (std::int32_t{1} << (bits - 1)) - 1; }

// The value in steps, clipped to +-most; inverse = 1 / step. Exact, because the step is a power of two, unless it is
// clipped, or so far below a step that it rounds to none. NaN gives a number, so that its conversion is defined.
FLUVIAL_HD float ring_steps(float value, float inverse, float most) {
  const float steps = value * inverse;
  const float above = steps > -most ? steps : -most;
  return above < most ? above : most;
}

// Half to even, for |steps| < 2^23.
FLUVIAL_HD std::int32_t ring_nearest(float steps) {
  const float magnitude = steps < 0 ? -steps : steps;
  const float rounded = (magnitude + 0x1p23F) - 0x1p23F;
  return static_cast<std::int32_t>(steps < 0 ? -rounded : rounded);
}

// The part of a step is seen as a whole number of units of 2^-14, rounded half to even, plus 14 random bits, without
// the lowest 14: up with the probability of the part. |error| < 1, and no code is beyond the greatest, because there
// the part is 0.
FLUVIAL_HD std::int32_t ring_stochastic(float steps, std::uint16_t random) {
  const auto whole = static_cast<std::int32_t>(steps);  // towards zero
  const std::int32_t units = nearest_int((steps - static_cast<float>(whole)) * kFineUnits);
  return whole + ((units + static_cast<std::int32_t>(random >> (16 - kFineBits))) >> kFineBits);
}

// Exact: codes have 23 bits at most.
FLUVIAL_HD float ring_value(std::int32_t code, float step) { return static_cast<float>(code) * step; }

// Three bytes, the lowest first, to a code.
FLUVIAL_HD std::int32_t ring_code_of(std::uint8_t low, std::uint8_t middle, std::uint8_t high) {
  const std::uint32_t bits = static_cast<std::uint32_t>(low) << 8 | static_cast<std::uint32_t>(middle) << 16 |
                             static_cast<std::uint32_t>(high) << 24;
  return static_cast<std::int32_t>(bits) >> 8;
}

}  // namespace fluvial::kernels::ops
