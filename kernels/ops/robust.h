// An fp32 value as an integer that sorts as the value does: -0 below +0, so that the order is total and sorting gives
// the same bits everywhere.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

FLUVIAL_HD std::int32_t sort_key(float value) {
  const std::int32_t bits = static_cast<std::int32_t>(float_bits(value));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

FLUVIAL_HD float key_value(std::int32_t key) {
  return bits_float(static_cast<std::uint32_t>(key ^ ((key >> 31) & 0x7fffffff)));
}

}  // namespace fluvial::kernels::ops
