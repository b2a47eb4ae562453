// int8 and int4 with a scale a block: value ~ q * scale with q in [-127, 127] or [-7, 7].
#pragma once

#include "kernels/ops/rounding.h"

namespace fluvial::kernels::ops {

constexpr float kInt8Most = 127.0F;
constexpr float kInt4Most = 7.0F;

FLUVIAL_HD float int8_scale(std::uint32_t amax_bits) { return block_scale(amax_bits, kInt8Most); }
FLUVIAL_HD float int4_scale(std::uint32_t amax_bits) { return block_scale(amax_bits, kInt4Most); }

FLUVIAL_HD float int8_value(std::int8_t q, float scale) { return static_cast<float>(q) * scale; }

// Two codes side by side (the first in the lower byte) to two nibbles in a byte (the first in the lower), and back.
FLUVIAL_HD std::uint8_t nibbles_of(std::uint16_t codes) {
  return static_cast<std::uint8_t>((codes & 0x0fU) | ((codes >> 4) & 0xf0U));
}
FLUVIAL_HD std::uint16_t codes_of(std::uint8_t nibbles) {
  const std::uint32_t apart = (nibbles & 0x0fU) | (static_cast<std::uint32_t>(nibbles & 0xf0U) << 4);
  const std::uint32_t negative = (apart & 0x0808U) >> 3;          // 1 in a byte whose code is negative
  return static_cast<std::uint16_t>(apart | (negative * 0xf0U));  // which has the upper nibble set
}

}  // namespace fluvial::kernels::ops
