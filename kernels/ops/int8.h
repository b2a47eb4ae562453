// Block-scaled int8: value ~ q * scale with q in [-127, 127].
#pragma once

#include "kernels/ops/rounding.h"

namespace fluvial::kernels::ops {

constexpr float kInt8Most = 127.0F;

FLUVIAL_HD float int8_scale(std::uint32_t amax_bits) { return block_scale(amax_bits, kInt8Most); }

FLUVIAL_HD float int8_value(std::int8_t q, float scale) { return static_cast<float>(q) * scale; }

}  // namespace fluvial::kernels::ops
