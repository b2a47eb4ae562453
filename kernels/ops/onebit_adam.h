// 1-bit Adam (Tang et al., ICML 2021), one coordinate. Moments are computed in fp64 and rounded once to fp32; the ratio
// of moments in fp32, as the square root and the division cost most; the step in fp64.
#pragma once

#include "kernels/ops/square_root.h"

namespace fluvial::kernels::ops {

struct OnebitFactors {
  double beta1, rest1;  // 1 - beta1
  double beta2, rest2;
  float tau;
};

FLUVIAL_HD OnebitFactors onebit_factors(double beta1, double beta2, double tau) {
  return {beta1, 1.0 - beta1, beta2, 1.0 - beta2, static_cast<float>(tau)};
}

// moment * beta + value * rest, with rest = 1 - beta. Both products and the sum round to fp64 (of fp32 squares, once).
FLUVIAL_HD float moment_step(double beta, double rest, float moment, double value) {
  return static_cast<float>(beta * static_cast<double>(moment) + rest * value);
}

// Exact: 48 bits.
FLUVIAL_HD double square_of(float value) { return static_cast<double>(value) * static_cast<double>(value); }

// What the root compresses once the variance is frozen. + 0 turns -0 into +0.
FLUVIAL_HD float onebit_fold(const OnebitFactors& f, float mean, float residual) {
  return (static_cast<float>(f.rest1 * static_cast<double>(mean)) + residual) + 0.0F;
}

// What a site is lent of the momentum: k M, for k = beta1 / (1 - beta1), rounded once.
FLUVIAL_HD float onebit_lent(double k, float momentum) { return static_cast<float>(k * static_cast<double>(momentum)); }

// A residual without what was lent when it was made, and with what is lent now.
FLUVIAL_HD float onebit_exchange(float residual, float lent_before, float lent) {
  return (residual - lent_before) + lent;
}

// model - lr * momentum / (sqrt(variance) + tau). A coordinate without variance has seen no gradient: it does not move.
FLUVIAL_HD float adam_step(double lr, float tau, float momentum, float variance, float model) {
  const float ratio = momentum / (square_root(variance) + tau);
  const float moved = static_cast<float>(static_cast<double>(model) - lr * static_cast<double>(ratio));
  return variance > 0.0F ? moved : model;
}

}  // namespace fluvial::kernels::ops
