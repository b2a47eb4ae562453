// The steps of the server optimizers, one coordinate at a time (kernels/optimizer.h has the formulas and their
// sources). Every operation rounds to fp32, in the order written, unless the types say fp64.
#pragma once

#include "kernels/ops/square_root.h"

namespace fluvial::kernels::ops {

struct AdaptiveFactors {
  float lr, beta1, one_minus_beta1, beta2, one_minus_beta2, tau;
};

FLUVIAL_HD AdaptiveFactors adaptive_factors(double lr, double beta1, double beta2, double tau) {
  return {static_cast<float>(lr),    static_cast<float>(beta1),       static_cast<float>(1.0 - beta1),
          static_cast<float>(beta2), static_cast<float>(1.0 - beta2), static_cast<float>(tau)};
}

FLUVIAL_HD float moment_step(const AdaptiveFactors& f, float moment, float mean) {
  return f.beta1 * moment + f.one_minus_beta1 * mean;
}

FLUVIAL_HD float adagrad_variance(const AdaptiveFactors&, float variance, float mean) { return variance + mean * mean; }

FLUVIAL_HD float adam_variance(const AdaptiveFactors& f, float variance, float mean) {
  return f.beta2 * variance + f.one_minus_beta2 * (mean * mean);
}

FLUVIAL_HD float yogi_variance(const AdaptiveFactors& f, float variance, float mean) {
  const float square = mean * mean;
  const float step = f.one_minus_beta2 * square;
  // sign(variance - square) * step, taken off; no step where they are equal
  return variance > square ? variance - step : (variance < square ? variance + step : variance);
}

FLUVIAL_HD float adaptive_step(const AdaptiveFactors& f, float moment, float variance, float model) {
  return model - f.lr * (moment / (square_root(variance) + f.tau));
}

// Nesterov's step from a moment that holds this mean already; fp64, rounded once.
FLUVIAL_HD float nesterov_step(double lr, double momentum, float moment, float mean, float model) {
  return static_cast<float>(static_cast<double>(model) -
                            lr * (static_cast<double>(mean) + momentum * static_cast<double>(moment)));
}

// Delayed Nesterov: share is 1 / N; ahead, the step's factor of the moment: momentum times c, in the N-th step momentum
// times 1 - c N + c. fp64, rounded once, but for the buffer's fp32 sum.
struct DelayedNesterovFactors {
  double lr, momentum, share, ahead;
};

FLUVIAL_HD float delayed_buffer(float buffer, float mean) { return buffer + mean; }

FLUVIAL_HD float delayed_moment(const DelayedNesterovFactors& f, float moment, float buffer) {
  return static_cast<float>(f.momentum * static_cast<double>(moment) + f.share * static_cast<double>(buffer));
}

FLUVIAL_HD float delayed_step(const DelayedNesterovFactors& f, float moment, float mean, float model) {
  return static_cast<float>(static_cast<double>(model) -
                            f.lr * (f.share * static_cast<double>(mean) + f.ahead * static_cast<double>(moment)));
}

// LARS: the moment takes the layer's rate in. fp64, rounded once.
FLUVIAL_HD float lars_moment(double momentum, double rate, double weight_decay, float moment, float mean, float model) {
  return static_cast<float>(momentum * static_cast<double>(moment) +
                            rate * (static_cast<double>(mean) + weight_decay * static_cast<double>(model)));
}

struct LambFactors {
  AdaptiveFactors adaptive;                      // lr holds the layer's rate in a step, and nothing in direction
  float moment_correction, variance_correction;  // 1 / (1 - beta^t)
  float weight_decay;
};

FLUVIAL_HD float lamb_direction(const LambFactors& f, float moment, float variance, float model) {
  const float m = moment * f.moment_correction;
  const float v = variance * f.variance_correction;
  return m / (square_root(v) + f.adaptive.tau) + f.weight_decay * model;
}

FLUVIAL_HD float lamb_step(const LambFactors& f, float moment, float variance, float model) {
  return model - f.adaptive.lr * lamb_direction(f, moment, variance, model);
}

}  // namespace fluvial::kernels::ops
