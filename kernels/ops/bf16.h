// bfloat16: the upper half of an fp32.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// Half to even. A finite value that would round to infinity becomes the largest finite bf16: finite in, finite out.
FLUVIAL_HD std::uint16_t bf16_from_float(float value) {
  const std::uint32_t bits = float_bits(value);
  const std::uint32_t magnitude = bits & kMagnitudeMask;
  std::uint32_t rounded = (magnitude + 0x7fffU + ((magnitude >> 16) & 1U)) >> 16;
  if (rounded > 0x7f7fU) rounded = 0x7f7fU;
  return static_cast<std::uint16_t>(rounded | ((bits >> 16) & 0x8000U));
}

FLUVIAL_HD float float_from_bf16(std::uint16_t half) { return bits_float(static_cast<std::uint32_t>(half) << 16); }

}  // namespace fluvial::kernels::ops
