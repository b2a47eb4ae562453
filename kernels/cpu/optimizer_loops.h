// The loops of the server optimizers (kernels/optimizer.h). Pointers never alias and need no more alignment than their
// type; counts may be zero.
#pragma once

#include <cstddef>

#include "kernels/cpu/target.h"
#include "kernels/ops/optimizer.h"

namespace fluvial::kernels::cpu {

using AdaptiveLoop = void (*)(const ops::AdaptiveFactors& f, const float* mean, std::size_t n, float* moment,
                              float* variance, float* model);

struct OptimizerLoops {
  AdaptiveLoop adagrad, adam, yogi;
  void (*signsgd)(double lr, const float* mean, std::size_t n, float* model);
  void (*nesterov)(double lr, double momentum, const float* mean, std::size_t n, float* moment, float* model);
  // Between the N-th steps, which leave the moment as it is; and the N-th one, after which the buffer is empty.
  void (*delayed_nesterov)(const ops::DelayedNesterovFactors& f, const float* mean, std::size_t n, const float* moment,
                           float* buffer, float* model);
  void (*delayed_nesterov_nth)(const ops::DelayedNesterovFactors& f, const float* mean, std::size_t n, float* moment,
                               float* buffer, float* model);
  void (*lars)(double momentum, double rate, double weight_decay, const float* mean, std::size_t n, float* moment,
               float* model);
  void (*lamb)(const ops::LambFactors& f, const float* mean, std::size_t n, float* moment, float* variance,
               float* model);
  // lanes[i % 16] += direction^2 in fp64, as Loops::screen does; nothing is stepped.
  void (*lamb_direction_squares)(const ops::LambFactors& f, const float* mean, const float* moment,
                                 const float* variance, const float* model, std::size_t n, double* lanes);
};

const OptimizerLoops& optimizer_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
