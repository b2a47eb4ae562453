// PowerSGD's numbers (codecs/powersgd.h), and in which order its sums are taken (cpu/lowrank_loops.h).
#pragma once

#include <cstddef>

#include "kernels/ops/philox.h"
#include "kernels/ops/square_root.h"

namespace fluvial::kernels::ops {

constexpr std::size_t kLowrankRankMax = 64;
constexpr std::size_t kLowrankLanes = 16;
constexpr std::size_t kLowrankCols = 2048;  // project: columns whose products are summed in fp32
constexpr std::size_t kLowrankRows = 256;   // project_back: rows whose products are summed in fp32
constexpr std::size_t kLowrankGroup = 8;    // project_back: rows that are summed before they join their block's sum

// A column of which no more than this part is left, without the columns before, lies in those.
constexpr double kDependent = 1e-8;

// The warm start as drawn, from a stream of the run's that no contribution has: odd multiples of 2^-16 between -1 and
// 1: exact, and never zero.
FLUVIAL_HD float drawn_factor(std::uint64_t run, std::uint64_t index) {
  const RandomStream stream = random_stream(run, ~std::uint64_t{0}, ~std::uint32_t{0});
  return static_cast<float>(2 * static_cast<int>(random_bits(stream, index)) - 65535) * 0x1p-16F;
}

// The power of two that brings a column of fp32 values, not all zero, to a norm in [0.5, 1).
FLUVIAL_HD double unit_scale(double norm_squared) {
  const auto exponent = __builtin_bit_cast(std::uint64_t, square_root(norm_squared)) >> 52;  // of a normal number
  return __builtin_bit_cast(double, (std::uint64_t{1023} + 1022 - exponent) << 52);
}

}  // namespace fluvial::kernels::ops
