// What the arithmetic on host memory shares. Internal to kernels/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/result.h"
#include "kernels/cpu/loops.h"

namespace fluvial::kernels {

// Values are worked on in pieces of this length, which stay in the first-level cache. A multiple of kSquareLanes.
inline constexpr std::size_t kPieceValues = 2048;

// kDataLoss that names the coordinate of the first value that is not finite.
Error not_finite(std::span<const float> values, std::uint64_t first_value);

// Lanes of squares (vector.h) to their sum.
double sum_lanes(std::span<double, cpu::kSquareLanes> lanes);

}  // namespace fluvial::kernels
