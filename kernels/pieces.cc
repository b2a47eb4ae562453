#include "kernels/pieces.h"

#include "core/base/format.h"
#include "kernels/ops/bits.h"

namespace fluvial::kernels {

Error not_finite(std::span<const float> values, std::uint64_t first_value) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    const std::uint32_t bits = ops::magnitude_bits(values[i]);
    if (bits < ops::kInfinityBits) continue;
    return {Code::kDataLoss, format_text("value {} is {}, expected a finite number", first_value + i,
                                         bits > ops::kInfinityBits ? "NaN" : "infinite")};
  }
  return {Code::kInternal, "all values are finite"};
}

double sum_lanes(std::span<double, cpu::kSquareLanes> lanes) {
  for (std::size_t half = cpu::kSquareLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

}  // namespace fluvial::kernels
