// IEEE 754 binary16.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

constexpr std::uint32_t kFp16MostBits = 0x477fe000U;    // 65504, the largest finite
constexpr std::uint32_t kFp16NormalBits = 0x38800000U;  // 2^-14, the smallest normal

// |value|, or 65504 if that is greater, infinite or NaN: the result converts to a finite value in any way.
FLUVIAL_HD std::uint32_t fp16_magnitude(float value) {
  const std::uint32_t magnitude = magnitude_bits(value);
  return magnitude > kFp16MostBits ? kFp16MostBits : magnitude;
}

// Half to even. A finite value that would round to infinity becomes the largest finite fp16 (as 65504 < |value| < 65520
// does by rounding): finite in, finite out.
FLUVIAL_HD std::uint16_t fp16_from_float(float value) {
  const std::uint32_t magnitude = fp16_magnitude(value);
  // 0.5 has an fp16 denormal for its last place: the addition rounds to a multiple of it.
  const std::uint32_t denormal = float_bits(bits_float(magnitude) + 0.5F) - float_bits(0.5F);
  const std::uint32_t normal = (magnitude - 0x38000000U + 0xfffU + ((magnitude >> 13) & 1U)) >> 13;
  const std::uint32_t rounded = magnitude < kFp16NormalBits ? denormal : normal;
  return static_cast<std::uint16_t>(rounded | ((float_bits(value) >> 16) & 0x8000U));
}

// Exact; a NaN becomes a quiet one.
FLUVIAL_HD float float_from_fp16(std::uint16_t half) {
  const std::uint32_t magnitude = static_cast<std::uint32_t>(half & 0x7fffU) << 13;
  const std::uint32_t finite = float_bits(bits_float(magnitude) * 0x1p112F);  // moves the exponent, denormals too
  const std::uint32_t quiet = magnitude > 0x0f800000U ? 0x00400000U : 0U;
  const std::uint32_t bits = magnitude >= 0x0f800000U ? (magnitude + 0x70000000U) | quiet : finite;
  return bits_float(bits | static_cast<std::uint32_t>(half & 0x8000U) << 16);
}

}  // namespace fluvial::kernels::ops
