// QSGD (Alistarh, Grubic, Li, Tomioka, Vojnovic, "QSGD: Communication-Efficient SGD via Gradient Quantization and
// Encoding", NeurIPS 2017, section 3.1): a value becomes norm * sign * xi / s, where norm is its block's 2-norm and xi
// one of the two whole numbers beside s * |value| / norm, drawn so that the mean is right. Here norm / s is the
// block's step, and sign * xi the code.
#pragma once

#include <cmath>

#include "kernels/ops/rounding.h"

namespace fluvial::kernels::ops {

// The least fp32 that is at least `value`, which is finite and not negative; infinity when there is none.
FLUVIAL_HD float float_at_least(double value) {
  const float nearest = static_cast<float>(value);
  return static_cast<double>(nearest) < value ? bits_float(float_bits(nearest) + 1) : nearest;
}

// norm / levels, rounded up, so that levels * step covers every magnitude of the block; 0 for a zero block. At least
// kScaleMin; and such that levels * step is finite: a block whose norm is beyond fp32 gets the greatest such step.
FLUVIAL_HD float qsgd_step(double norm_squared, std::int32_t levels) {
  if (norm_squared == 0) return 0.0F;
  const float most = static_cast<float>(levels);
  const float step = float_at_least(std::sqrt(norm_squared) / static_cast<double>(levels));
  if (step < kScaleMin) return kScaleMin;
  if (magnitude_bits(step) < kInfinityBits && magnitude_bits(most * step) < kInfinityBits) return step;
  const float limit = bits_float(kInfinityBits - 1) / most;
  return magnitude_bits(most * limit) < kInfinityBits ? limit : bits_float(float_bits(limit) - 1);
}

// With fine_inverse = 2^14 / step: rounding.h's stochastic rounding, to -levels .. levels; the error is below one step.
// No magnitude is beyond levels * step but by rounding, which the clamp takes away.
FLUVIAL_HD std::int32_t qsgd_code(float value, float fine_inverse, std::int32_t levels, std::uint16_t random) {
  const std::int32_t code = round_stochastic(value, fine_inverse, random);
  return code > levels ? levels : (code < -levels ? -levels : code);
}

}  // namespace fluvial::kernels::ops
