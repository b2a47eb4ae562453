// TernGrad (Wen, Xu, Yan, Wu, Wang, Chen, Li, "TernGrad: Ternary Gradients to Reduce Communication in Distributed Deep
// Learning", NeurIPS 2017, equations 3 and 7): a value becomes scale * sign * b, where scale is its block's greatest
// magnitude and b is 1 with probability |value| / scale, and 0 otherwise.
#pragma once

#include <cmath>

#include "kernels/ops/rounding.h"

namespace fluvial::kernels::ops {

// Chances are whole multiples of 2^-16, as many as there are random bits.
constexpr float kChances = 0x1p16F;
// Scales are at least this, so that kChances / scale is finite.
constexpr float kTernGradScaleMin = 0x1p-111F;

// The greatest magnitude of a block, or what clipping leaves of it: clip * sqrt(norm_squared / count), when clip is not
// 0 (the deviation about zero, which a gradient's mean nearly is; so a block of one value throughout stays as it is).
// 0 for a zero block, otherwise at least kTernGradScaleMin.
FLUVIAL_HD float terngrad_scale(std::uint32_t amax_bits, double norm_squared, std::uint32_t count, double clip) {
  if (amax_bits == 0) return 0.0F;
  float scale = bits_float(amax_bits);
  if (clip > 0) {
    const double limit = clip * std::sqrt(norm_squared / static_cast<double>(count));
    if (limit < static_cast<double>(scale)) scale = static_cast<float>(limit);
  }
  return scale < kTernGradScaleMin ? kTernGradScaleMin : scale;
}

// sign * b, with chances = 2^16 / scale. A value beyond the scale is always sent; the chance of any other value is
// within 2^-17 (and 2^-23 of itself) of |value| / scale.
FLUVIAL_HD std::int32_t terngrad_code(float value, float chances, std::uint16_t random) {
  const float wanted = bits_float(magnitude_bits(value)) * chances;
  const std::int32_t chance = nearest_int(wanted < kChances ? wanted : kChances);
  const std::int32_t sign = static_cast<std::int32_t>(float_bits(value)) < 0 ? -1 : 1;
  return static_cast<std::int32_t>(random) < chance ? sign : 0;
}

// Five codes a byte, as the digits of a balanced ternary number: code 0 + 3 * code 1 + 9 * code 2 + 27 * code 3 +
// 81 * code 4, from -121 to 121.
constexpr std::int32_t kTernaryDigits = 5;
constexpr std::int32_t kTernaryMost = 121;

// Digit `place` of such a number: floor((packed + 121) / 3^place) % 3 - 1, the divisions as multiplications that are
// exact up to 242.
struct TernaryPlace {
  std::uint16_t multiplier;
  std::uint16_t shift;
};
FLUVIAL_HD TernaryPlace ternary_place(std::int32_t place) {
  constexpr TernaryPlace kPlaces[kTernaryDigits] = {{1, 0}, {171, 9}, {57, 9}, {19, 9}, {203, 14}};
  return kPlaces[place];
}
FLUVIAL_HD std::int8_t ternary_digit(std::int8_t packed, TernaryPlace place) {
  const auto from_zero = static_cast<std::uint16_t>(packed + kTernaryMost);
  const auto shifted =
      static_cast<std::uint16_t>(static_cast<std::uint16_t>(from_zero * place.multiplier) >> place.shift);
  const auto third = static_cast<std::uint16_t>(static_cast<std::uint16_t>(shifted * 171U) >> 9);
  return static_cast<std::int8_t>(shifted - 3 * third - 1);
}

}  // namespace fluvial::kernels::ops
