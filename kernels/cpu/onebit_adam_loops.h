// The loops of 1-bit Adam, one table of functions a target. Pointers never alias unless a comment allows it.
#pragma once

#include <cstddef>

#include "kernels/cpu/target.h"
#include "kernels/ops/onebit_adam.h"

namespace fluvial::kernels::cpu {

struct OnebitAdamLoops {
  // The root's part: moment = ((1 - beta1) * mean + moment) + 0.
  void (*fold)(const ops::OnebitFactors& factors, const float* mean, float* moment, std::size_t n);
  // Both moments, then the step.
  void (*warm_up)(const ops::OnebitFactors& factors, double lr, const float* mean, std::size_t n, float* momentum,
                  float* variance, float* model);
  // The step alone.
  void (*apply)(const ops::OnebitFactors& factors, double lr, const float* momentum, const float* variance,
                std::size_t n, float* model);
  // A site's part: what was lent goes out of the residual, k * momentum is lent in its place.
  void (*exchange)(double k, const float* momentum, std::size_t n, float* lent, float* residual);
};

const OnebitAdamLoops& onebit_adam_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
