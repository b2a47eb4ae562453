// Sums of a few fp32 vectors in one pass: the results of one machine's workers, before a site encodes; and the bound on
// an update's norm.
//
// Shapes: `inputs` are 1 to kReduceInputsMax vectors of one length, `out` as long (checked: our own invariant). `out`
// may be one of the inputs (in place). A caller with threads splits the range, in any way.
// Determinism: bitwise. The result of a coordinate is a function of the inputs' values there in the order given: the
// same for every target, split and alignment. The order of the inputs matters.
// Values: anything passes. NaN and infinities follow IEEE arithmetic; a sum beyond the range of fp32 is infinite
// (screen() finds it), which reduce_mean() cannot be for finite inputs.
// Errors: kInvalidArgument for a count outside the bounds; nothing is written then. No allocation. Thread safe.
#pragma once

#include <cstddef>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/codec.h"

namespace fluvial::kernels {

inline constexpr std::size_t kReduceInputsMax = 64;

enum class SumIn {
  kFp32,  // ((x0 + x1) + x2) + ..., each addition rounded to fp32
  kFp64,  // the same order in fp64, rounded to fp32 once
};

Status reduce_sum(std::span<const std::span<const float>> inputs, SumIn precision, std::span<float> out,
                  cpu::Target target = cpu::best_target());
// Inputs are little-endian bf16, two bytes a value.
Status reduce_sum_bf16(std::span<const ByteSpan> inputs, SumIn precision, std::span<float> out,
                       cpu::Target target = cpu::best_target());

// fp32((x0 + x1 + ...) / count): in order in fp64, where 64 fp32 values cannot overflow, and rounded once. Summing in a
// narrow type before dividing overflows for values whose mean is small enough.
Status reduce_mean(std::span<const std::span<const float>> inputs, std::span<float> out,
                   cpu::Target target = cpu::best_target());
Status reduce_mean_bf16(std::span<const ByteSpan> inputs, std::span<float> out,
                        cpu::Target target = cpu::best_target());

// min(1, bound / sqrt(norm_squared)): this factor shortens a vector to a 2-norm of `bound` and keeps its direction
// (norm clipping; Abadi et al. 2016, Algorithm 1). 1 for a zero vector. bound > 0 and norm_squared >= 0, both finite
// (kInvalidArgument).
Result<double> clip_factor(double norm_squared, double bound);

// values = fp32(fp64(values) * factor), and in the same pass screen()'s report on the result. factor is 0 to 1
// (checked). The clipped norm exceeds the bound by no more than the rounding: a factor of 1 + 2^-24, and 2^-150 for a
// coordinate below fp32's normal range. Chunk-wise: the factor comes from the whole vector's norm.
ScreenReport scale_in_place(std::span<float> values, double factor, cpu::Target target = cpu::best_target());

// screen(), then scale_in_place() when the norm is above the bound. kDataLoss as screen(), kInvalidArgument as
// clip_factor(); the values are unchanged then. The report is of the result.
Result<ScreenReport> clip_norm(std::span<float> values, double bound, std::uint64_t first_value = 0,
                               cpu::Target target = cpu::best_target());

}  // namespace fluvial::kernels
