// Shared by the arithmetic on host memory. Internal to kernels/.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/result.h"
#include "kernels/cpu/loops.h"

namespace fluvial::kernels {

// Values are worked on in pieces of this length, which stay in the first-level cache. A multiple of kSquareLanes.
inline constexpr std::size_t kPieceValues = 2048;

// Whole weights, and their sum (exact: fewer than 2^24 weights below 2^29), as fp64.
struct Weights {
  std::vector<double> each;
  double total = 0;
};
// kInvalidArgument unless there are as many as vectors, at least one, and each is 1 to kWeightEnd - 1.
Result<Weights> check_weights(std::span<const std::uint32_t> weights, std::size_t vector_count);

// out = fp32((sum over k in order of fp64(vectors[k]) * coefficients[k]) / divisor), each operation rounded to fp64: 0
// is added to first. `out` may be any of the vectors.
void weighted_sum(std::span<const std::span<const float>> vectors, std::span<const double> coefficients, double divisor,
                  std::span<float> out);

// kDataLoss that names the coordinate of the first value that is not finite.
Error not_finite(std::span<const float> values, std::uint64_t first_value);

// Lanes of squares (vector.h) to their sum.
double sum_lanes(std::span<double, cpu::kSquareLanes> lanes);

}  // namespace fluvial::kernels
