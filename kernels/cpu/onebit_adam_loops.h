// The loops of 1-bit Adam, one table of functions a target. Pointers never alias unless a comment allows it.
#pragma once

#include <cstddef>

#include "kernels/cpu/target.h"
#include "kernels/ops/onebit_adam.h"

namespace fluvial::kernels::cpu {

struct OnebitAdamLoops {
  // out = ((beta1 * momentum + rest1 * gradient) + residual) + 0; out may be any of the inputs.
  void (*fold)(const ops::OnebitFactors& factors, const float* gradient, const float* momentum, const float* residual,
               std::size_t n, float* out);
  // Both moments, then the step.
  void (*warm_up)(const ops::OnebitFactors& factors, double lr, const float* mean, std::size_t n, float* momentum,
                  float* variance, float* model);
  // The step alone.
  void (*apply)(const ops::OnebitFactors& factors, double lr, const float* momentum, const float* variance,
                std::size_t n, float* model);
  // A variance above 0 becomes at least `least`.
  void (*raise)(float least, std::size_t n, float* variance);
};

const OnebitAdamLoops& onebit_adam_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
