// One-pass arithmetic on flat fp32 vectors. Deterministic: the stated order and roundings on every machine. Thread
// safe: each call touches only its spans. Spans of one call have equal lengths (checked).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/result.h"
#include "kernels/codec.h"

namespace fluvial::kernels {

// Greatest magnitude and squared 2-norm. kDataLoss names the first coordinate that is NaN or infinite, counted from
// first_value. norm_squared: fp64, lane i of 16 adds the squares at i, i + 16, ... in order; then lanes i and i + 8, i
// and i + 4, ... are added. `target` is for tests and benchmarks: all targets give the same bits.
Result<ScreenReport> screen(std::span<const float> values, std::uint64_t first_value = 0,
                            cpu::Target target = cpu::best_target());

// out = fp32((sum over k in order of fp64(vectors[k]) * weights[k]) / fp64(sum of weights)), for the workers of a site.
// The products are exact; each addition, the division and the conversion round once. kInvalidArgument unless there are
// as many weights as vectors, at least one, and each weight is 1 to kWeightEnd - 1.
Status weighted_mean(std::span<const std::span<const float>> vectors, std::span<const std::uint32_t> weights,
                     std::span<float> out);

// out = fp32(sum over k in order of fp64(vectors[k]) * coefficients[k]), each operation rounded to fp64. There are as
// many coefficients as vectors, at least one; `out` may be any of the vectors.
void combine(std::span<const std::span<const float>> vectors, std::span<const double> coefficients,
             std::span<float> out);

// out = ((base - local) + residual) + 0, each operation rounded to fp32: the update that a site encodes. The last one
// turns -0 into +0. `residual` may be empty (all zero); `out` may be any of the others.
void pseudo_gradient(std::span<const float> base, std::span<const float> local, std::span<const float> residual,
                     std::span<float> out);

// out = (update + residual) + 0, each operation rounded to fp32: the same for a worker's result that is an update
// already. `residual` may be empty (all zero); `out` may be either.
void add_residual(std::span<const float> update, std::span<const float> residual, std::span<float> out);

// model = fp32(fp64(model) - lr * fp64(mean)): the product and the difference round to fp64.
void apply_sgd(double lr, std::span<const float> mean, std::span<float> model);

// moment = fp32(momentum * fp64(moment) + fp64(mean)); model = fp32(fp64(model) - lr * fp64(moment)).
void apply_momentum(double lr, double momentum, std::span<const float> mean, std::span<float> moment,
                    std::span<float> model);

}  // namespace fluvial::kernels
