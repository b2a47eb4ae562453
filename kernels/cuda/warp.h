// Operations of the lanes of a warp together, and of the warps of a block. Internal.
#pragma once

#include "kernels/cuda/gpu.h"

namespace fluvial::kernels::FLUVIAL_GPU {

__device__ inline unsigned lane_id() { return threadIdx.x % kWarp; }
__device__ inline unsigned warp_id() { return threadIdx.x / kWarp; }

__device__ inline std::uint32_t warp_max(std::uint32_t value) {
#if defined(__CUDA_ARCH__) && __CUDA_ARCH__ >= 800
  return __reduce_max_sync(kFullMask, value);
#else
  for (int step = 16; step > 0; step /= 2) {
    const std::uint32_t other = __shfl_xor_sync(kFullMask, value, step);
    value = other > value ? other : value;
  }
  return value;
#endif
}

// Lanes l and l + 16 are added, then 8, 4, 2, 1; every lane has the sum.
__device__ inline double warp_tree_sum(double value) {
  for (int step = 16; step > 0; step /= 2) value += __shfl_xor_sync(kFullMask, value, step);
  return value;
}

// The sum of the values of the lanes before this one.
__device__ inline std::uint32_t warp_sum_before(std::uint32_t value) {
  std::uint32_t sum = value;
  for (unsigned step = 1; step < kWarp; step *= 2) {
    const std::uint32_t other = __shfl_up_sync(kFullMask, sum, step);
    if (lane_id() >= step) sum += other;
  }
  return sum - value;
}

// The same over a block; `total` gets the sum of all. All threads of the block call it; `shared` holds 33 numbers and
// is free again after the next __syncthreads().
__device__ inline std::uint32_t block_sum_before(std::uint32_t value, std::uint32_t* shared, std::uint32_t* total) {
  const std::uint32_t before = warp_sum_before(value);
  if (lane_id() == kWarp - 1) shared[warp_id()] = before + value;
  __syncthreads();
  if (warp_id() == 0) {
    const unsigned warps = blockDim.x / kWarp;
    const std::uint32_t of_warp = lane_id() < warps ? shared[lane_id()] : 0;
    const std::uint32_t before_warp = warp_sum_before(of_warp);
    if (lane_id() < warps) shared[lane_id()] = before_warp;
    if (lane_id() == kWarp - 1) shared[kWarp] = before_warp + of_warp;
  }
  __syncthreads();
  *total = shared[kWarp];
  return shared[warp_id()] + before;
}

// Of words that begin as zeros, and that others set bits of: `value` from bit `at` on.
__device__ inline void set_bits(std::uint32_t* words, std::uint64_t at, std::uint32_t value) {
  const auto shifted = static_cast<std::uint64_t>(value) << (at % 32);
  if (static_cast<std::uint32_t>(shifted) != 0) atomicOr(&words[at / 32], static_cast<std::uint32_t>(shifted));
  if (shifted >> 32 != 0) atomicOr(&words[at / 32 + 1], static_cast<std::uint32_t>(shifted >> 32));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
