// The arithmetic of the server optimizers on flat fp32 vectors, in place. `mean` is the weighted mean of the
// pseudo-gradients (base minus local), D below, so that it is subtracted: the papers' delta is -D. fedavg and fedavgm
// are apply_sgd() and apply_momentum() of vector.h.
//
// Shapes: all spans of one call have one length (checked). Except for norms, coordinates are independent: the caller
// may cut anywhere. Determinism: bitwise, on every target and for every cut; norms as stated. No libm: only IEEE + - *
// / and square root. Thread safe: each call touches only its spans. Values are finite (they were screened); a moment or
// variance that leaves fp32 (|D| above 1.8e19) makes an infinite variance, and steps of zero.
//
// Adaptive rules (Reddi et al., "Adaptive Federated Optimization", 2021, Algorithm 2): no bias correction; the variance
// starts at tau^2 or above, never at zero. Factors are rounded to fp32 once (1 - beta from fp64), every operation
// rounds to fp32, in the order written:
//
//   m = beta1 * m + (1 - beta1) * D
//   v = v + D^2                                       adagrad
//   v = beta2 * v + (1 - beta2) * D^2                 adam
//   v = v - (1 - beta2) * D^2 * sign(v - D^2)         yogi; sign(0) = 0
//   model = model - lr * (m / (sqrt(v) + tau))
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/cpu/loops.h"
#include "kernels/ops/optimizer.h"

namespace fluvial::kernels {

enum class AdaptiveRule : std::uint8_t { kAdagrad, kAdam, kYogi };

struct AdaptiveOptions {
  double lr = 0.01;
  double beta1 = 0.9;
  double beta2 = 0.99;  // not adagrad
  double tau = 1e-3;
};

void apply_adaptive(AdaptiveRule rule, const AdaptiveOptions& options, std::span<const float> mean,
                    std::span<float> moment, std::span<float> variance, std::span<float> model,
                    cpu::Target target = cpu::best_target());

// Signs alone (Bernstein et al., "signSGD with Majority Vote", ICLR 2019): model = fp32(model - lr * sign(D)) in fp64,
// sign(0) = 0. Of weighted votes (codec sign:mode=vote, summed at scale_bits 0) D's sign is that of their sum: their
// majority, whatever the tree; a majority of majorities would be something else. A vote does not say how large a value
// is, and error feedback gives it no bound.
void apply_signsgd(double lr, std::span<const float> mean, std::span<float> model,
                   cpu::Target target = cpu::best_target());

// Nesterov momentum as DiLoCo's outer optimizer (Douillard et al. 2023; Sutskever et al. 2013 as PyTorch has it):
// b = fp32(mu * b + D); model = fp32(model - lr * (D + mu * b)), the operations in fp64.
void apply_nesterov(double lr, double momentum, std::span<const float> mean, std::span<float> moment,
                    std::span<float> model, cpu::Target target = cpu::best_target());

// Delayed Nesterov momentum (Liu et al. 2024, "Asynchronous Local-SGD Training for Language Modeling", Delayed Nesterov
// Update), with N = every, for steps of few contributions each:
//   B = B + D
//   every N-th step:  m = mu * m + B / N;  model = model - lr * (D / N + (1 - c N + c) * mu * m);  B = 0
//   the others:       model = model - lr * (D / N + c * mu * m)
// B is a sum in fp32; else the operations in fp64, each vector rounded to fp32 once. Divisions are products with 1 / N,
// and what stands before m is a factor, both rounded once. With N = 1 and c = 0 it is apply_nesterov(), bit for bit
// but for the signs of zeros.
struct DelayedNesterovOptions {
  double lr = 0.7;
  double momentum = 0.9;
  std::uint64_t every = 4;  // N, at least 1
  double c = 0;             // 0 to 1 / N: how much of the momentum the steps between take
  std::uint64_t step = 1;   // counted from 1; an N-th one where N divides it
};
// What the arithmetic takes of these. Internal.
bool is_nth(const DelayedNesterovOptions& options);
ops::DelayedNesterovFactors delayed_nesterov_factors(const DelayedNesterovOptions& options);
void apply_delayed_nesterov(const DelayedNesterovOptions& options, std::span<const float> mean, std::span<float> moment,
                            std::span<float> buffer, std::span<float> model, cpu::Target target = cpu::best_target());

// Squares of a tensor's values, added up chunk by chunk: fp64, lane i of 16 takes the squares at i, i + 16, ... of each
// chunk, in order; sum_of() adds lanes i and i + 8, then i and i + 4, ... So a norm's bits depend on the cuts as well:
// cut as the plan says, and add chunks up in their order.
using SquareLanes = std::array<double, cpu::kSquareLanes>;
void add_squares(std::span<const float> values, SquareLanes& lanes, cpu::Target target = cpu::best_target());
double sum_of(const SquareLanes& lanes);

// Layer-wise rates. A layer is one tensor; `rate` follows from the whole layer's norms (core/aggregate).
//
// LARS (You, Gitman, Ginsburg 2017, Algorithm 1): b = fp32(mu * b + rate * (D + decay * model));
// model = fp32(model - b), the operations in fp64; rate = lr * trust * |model| / (|D| + decay * |model|).
void apply_lars(double momentum, double rate, double weight_decay, std::span<const float> mean, std::span<float> moment,
                std::span<float> model, cpu::Target target = cpu::best_target());

// LAMB (You et al. 2020, Algorithm 2), m and v as adam's, from zero, with bias correction by the step t >= 1:
//   direction = (m / (1 - beta1^t)) / (sqrt(v / (1 - beta2^t)) + epsilon) + decay * model
//   model = model - rate * direction;  rate = lr * trust * |model| / |direction|
// Every operation in fp32, the corrections being products with 1 / (1 - beta^t), which fp64 computes by repeated
// squaring and fp32 rounds once.
struct LambOptions {
  double beta1 = 0.9;
  double beta2 = 0.999;
  double epsilon = 1e-6;
  double weight_decay = 0;
  std::uint64_t step = 1;
};
// What the arithmetic takes of these. Internal.
ops::LambFactors lamb_factors(const LambOptions& options, double rate);
// lanes += the squares of the direction that apply_lamb() would take; the state does not change.
void add_lamb_squares(const LambOptions& options, std::span<const float> mean, std::span<const float> moment,
                      std::span<const float> variance, std::span<const float> model, SquareLanes& lanes,
                      cpu::Target target = cpu::best_target());
void apply_lamb(const LambOptions& options, double rate, std::span<const float> mean, std::span<float> moment,
                std::span<float> variance, std::span<float> model, cpu::Target target = cpu::best_target());

}  // namespace fluvial::kernels
