// The loops over signs and their scales, one table of functions a target. Everything comes in blocks of `block` values,
// the last may be shorter; each block's bits begin at a byte of their own, lowest bit first, 1 for a value below zero.
// `scales` are fp32, a block each, not aligned; null: every scale is 1. Pointers never alias unless a comment allows
// it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

struct SignLoops {
  // Writes bits, and scales unless null. Returns how many blocks were encoded: all of them, or those before the first
  // that holds a value that is not finite. With `residual`, which may be x or null: residual = x - decoded.
  std::size_t (*encode)(const float* x, std::size_t n, std::size_t block, std::byte* scales, std::byte* bits,
                        float* residual);
  void (*decode)(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block, float* out);
  // out = x - decoded; out may be x.
  void (*residual)(const float* x, const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block,
                   float* out);
  // sum += weight * decoded, both rounded to fp32.
  void (*add)(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block, float weight,
              float* sum);
  // sum += decoded * factor, rounded; every scale * factor is at most 2^62.
  void (*accumulate)(const std::byte* scales, const std::byte* bits, std::size_t n, std::size_t block, double factor,
                     std::int64_t* sum);
  // lanes[i % 16] += decoded[i]^2 in fp64, in order: the sum that a screen of the decoded values makes.
  void (*squares)(const std::byte* scales, std::size_t n, std::size_t block, double* lanes);
};

const SignLoops& sign_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
