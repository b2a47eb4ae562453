// Block-scaled int8: value ~ q * scale with q in [-127, 127].
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// amax / 127 for a block whose greatest magnitude is finite; 0 for a zero block. At least the smallest normal, so that
// value / scale keeps its precision, and such that 127 * scale is finite.
FLUVIAL_HD float int8_scale(std::uint32_t amax_bits) {
  if (amax_bits == 0) return 0.0F;
  float scale = bits_float(amax_bits) / 127.0F;
  if (scale < kMinNormal) scale = kMinNormal;
  if (magnitude_bits(127.0F * scale) >= kInfinityBits) scale = bits_float(float_bits(scale) - 1);
  return scale;
}

FLUVIAL_HD std::int32_t int8_clamp(std::int32_t q) { return q > 127 ? 127 : (q < -127 ? -127 : q); }

// floor(value / scale) + 1 with the probability of the fraction, taken from the upper 24 random bits; else + 0. The
// error is below one scale, its mean zero.
FLUVIAL_HD std::int32_t int8_stochastic(float value, float scale, std::uint32_t random) {
  const float t = value / scale;
  std::int32_t q = static_cast<std::int32_t>(t);
  q -= t < static_cast<float>(q) ? 1 : 0;
  const float fraction = t - static_cast<float>(q);
  const float uniform = static_cast<float>(static_cast<std::int32_t>(random >> 8)) * 0x1p-24F;
  q += uniform < fraction ? 1 : 0;
  return int8_clamp(q);
}

// Nearest, half to even: |value / scale| is far below 2^22, where adding 1.5 * 2^23 rounds to an integer.
FLUVIAL_HD std::int32_t int8_nearest(float value, float scale) {
  const float rounded = (value / scale + 0x1.8p23F) - 0x1.8p23F;
  return int8_clamp(static_cast<std::int32_t>(rounded));
}

FLUVIAL_HD float int8_value(std::int8_t q, float scale) { return static_cast<float>(q) * scale; }

}  // namespace fluvial::kernels::ops
