// The loops that sum several vectors in one pass and scale one. Pointers need no more alignment than their type; counts
// may be zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

struct ReduceLoops {
  // out[i] = ((in[0][i] + in[1][i]) + in[2][i]) + ..., each addition rounded to fp32; count >= 1. `out` may be one of
  // the inputs. `stream`: past the caches.
  void (*sum)(const float* const* in, std::size_t count, std::size_t n, bool stream, float* out);
  void (*sum_bf16)(const std::byte* const* in, std::size_t count, std::size_t n, bool stream, float* out);
  // The same sums in fp64, divided by `by` and rounded to fp32 once.
  void (*wide_sum)(const float* const* in, std::size_t count, std::size_t n, double by, bool stream, float* out);
  void (*wide_sum_bf16)(const std::byte* const* in, std::size_t count, std::size_t n, double by, bool stream,
                        float* out);
  // x *= factor in fp64, rounded to fp32; the magnitude bits and the lanes of squares (Loops::screen) of what is
  // written.
  std::uint32_t (*scale)(float* x, std::size_t n, double factor, double* lanes);
};

const ReduceLoops& reduce_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
