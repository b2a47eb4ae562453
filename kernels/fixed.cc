#include "kernels/fixed.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "core/base/format.h"
#include "kernels/ops/fixed.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

constexpr int kSumBits = 62;
static_assert(kSumMax == ops::kTermLimit);

// The smallest e with value <= 2^e, for value > 0.
int ceil_log2(double value) {
  int exponent = 0;
  const double mantissa = std::frexp(value, &exponent);  // in [0.5, 1)
  return mantissa == 0.5 ? exponent - 1 : exponent;
}

}  // namespace

Result<int> scale_bits(int fraction_bits, double max_abs, std::uint64_t weight_sum) {
  if (!(max_abs > 0 && max_abs <= 0x1p127)) {
    return Error{Code::kInvalidArgument, format_text("max_abs is {}, expected above 0 and at most 2^127", max_abs)};
  }
  if (weight_sum == 0 || weight_sum >= kWeightSumEnd) {
    return Error{Code::kInvalidArgument, format_text("the weights' sum is {}, expected 1 to 2^53 - 1", weight_sum)};
  }
  if (fraction_bits < kScaleBitsMin || fraction_bits > kScaleBitsMax) {
    return Error{Code::kInvalidArgument,
                 format_text("fraction_bits is {}, expected {} to {}", fraction_bits, kScaleBitsMin, kScaleBitsMax)};
  }
  // The product may round down by 2^-53 of itself; sums then stay below 2^62 * (1 + 2^-53), still far from 2^63.
  return std::min(fraction_bits, kSumBits - ceil_log2(max_abs * static_cast<double>(weight_sum)));
}

void mean_of_sums(std::span<const std::int64_t> sum, int scale_bits, std::uint64_t total_weight, std::span<float> out) {
  FLUVIAL_CHECK(sum.size() == out.size(), "as many means as sums");
  FLUVIAL_CHECK(total_weight >= 1 && total_weight < kWeightSumEnd, "a total weight that no round can have");
  cpu::loops().mean(sum.data(), sum.size(), std::ldexp(1.0, -scale_bits), static_cast<double>(total_weight),
                    out.data());
}

}  // namespace fluvial::kernels
