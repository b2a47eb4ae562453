// The loops of the sparse codecs, one table of functions a target (loops.h).
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

struct SparseLoops {
  // The values whose magnitude bits are at least `threshold`, in order, and where each stands, counted from `first`;
  // returns how many. index and value hold n. Most values are expected to be smaller.
  std::size_t (*gather)(const float* x, std::size_t n, std::uint32_t threshold, std::uint32_t first,
                        std::uint32_t* index, float* value);
  // out = x, written past the caches: for values that are not read again soon.
  void (*copy)(const float* x, std::size_t n, float* out);
  // moment = momentum * moment + update * factor;  out = (residual + moment) + 0, which turns -0 into +0. Each
  // operation rounds to fp32. residual may be null: all zero; out may be update or residual.
  void (*dgc_fold)(const float* update, const float* residual, std::size_t n, float factor, float momentum,
                   float* moment, float* out);
};

const SparseLoops& sparse_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
