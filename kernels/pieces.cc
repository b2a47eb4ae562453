#include "kernels/pieces.h"

#include "core/base/format.h"
#include "kernels/ops/bits.h"
#include "kernels/ops/norm.h"

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

double sum_lanes(std::span<double, cpu::kSquareLanes> lanes) { return ops::add_lanes(lanes.data(), cpu::kSquareLanes); }

}  // namespace fluvial::kernels
