// 1-bit Adam (Tang et al., ICML 2021), one coordinate. Moments are computed in fp64 and rounded once to fp32; the ratio
// of moments in fp32, as the square root and the division cost most; the step in fp64.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// moment * beta + value * rest, with rest = 1 - beta. Both products and the sum round to fp64 (of fp32 squares, once).
FLUVIAL_HD float moment_step(double beta, double rest, float moment, double value) {
  return static_cast<float>(beta * static_cast<double>(moment) + rest * value);
}

// Exact: 48 bits.
FLUVIAL_HD double square_of(float value) { return static_cast<double>(value) * static_cast<double>(value); }

// model - lr * momentum / (sqrt(variance) + eps). A coordinate without variance has seen no gradient: it does not move.
FLUVIAL_HD float adam_step(double lr, float eps, float momentum, float variance, float model) {
  const float ratio = momentum / (__builtin_sqrtf(variance) + eps);
  const float moved = static_cast<float>(static_cast<double>(model) - lr * static_cast<double>(ratio));
  return variance > 0.0F ? moved : model;
}

}  // namespace fluvial::kernels::ops
