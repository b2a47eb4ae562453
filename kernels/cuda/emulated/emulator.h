// CUDA's kernels as plain C++ functions on the CPU: for tests of what a kernel computes on a machine without a GPU.
//
// A kernel's source includes gpu.h, which takes this in place of the CUDA runtime when the compiler is not nvcc. The
// blocks of a grid run one after the other; the threads of a block are fibers, switched at barriers and warp
// operations alone, in ascending or descending order (set_order): so a missing barrier shows as a different result.
// What the rules of CUDA leave undefined stops the process with a message: a barrier that some threads never reach, a
// warp operation without all 32 lanes, an access beyond the end of a device's memory (device.cc). Other accesses are
// not checked, and there is no notion of time.
//
// One kernel at a time in a process: other threads wait. Not under the sanitizers that follow stacks (is_supported).
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <cstring>

#include "core/base/check.h"

#define __global__
#define __device__
#define __host__
#define __forceinline__ inline
#define __shared__ static
#define __launch_bounds__(...)
#define __align__(bytes) __attribute__((aligned(bytes)))

namespace fluvial::kernels::emulated {

struct Index3 {
  unsigned x = 0, y = 0, z = 0;
};

// Of the thread that runs.
extern Index3 thread_index, block_index, block_dim, grid_dim;

constexpr unsigned kWarpLanes = 32;
constexpr unsigned kBlockThreadsMax = 1024;

bool is_supported();

enum class Order : std::uint8_t { kAscending, kDescending };
void set_order(Order order);

// Runs body(state) as every thread of grid x block; block is a multiple of 32.
void run_blocks(unsigned grid, unsigned block, void (*body)(void* state), void* state);

void block_barrier();
// Every lane of the warp gives a word and sees all 32, until its next warp operation but one.
const std::uint64_t* warp_exchange(std::uint64_t mine);
unsigned lane();

inline void check_mask(unsigned mask) { FLUVIAL_CHECK(mask == 0xffffffffU, "a warp operation without all lanes"); }

template <typename T>
T from_word(std::uint64_t word) {
  T value;
  std::memcpy(&value, &word, sizeof(T));
  return value;
}
template <typename T>
std::uint64_t to_word(T value) {
  static_assert(sizeof(T) <= sizeof(std::uint64_t));
  std::uint64_t word = 0;
  std::memcpy(&word, &value, sizeof(T));
  return word;
}

}  // namespace fluvial::kernels::emulated

#define threadIdx (::fluvial::kernels::emulated::thread_index)
#define blockIdx (::fluvial::kernels::emulated::block_index)
#define blockDim (::fluvial::kernels::emulated::block_dim)
#define gridDim (::fluvial::kernels::emulated::grid_dim)

inline void __syncthreads() { fluvial::kernels::emulated::block_barrier(); }
inline void __syncwarp(unsigned mask = 0xffffffffU) {
  fluvial::kernels::emulated::check_mask(mask);
  fluvial::kernels::emulated::warp_exchange(0);
}

template <typename T>
T __shfl_sync(unsigned mask, T value, int source) {
  namespace emulated = fluvial::kernels::emulated;
  emulated::check_mask(mask);
  const std::uint64_t* words = emulated::warp_exchange(emulated::to_word(value));
  return emulated::from_word<T>(words[static_cast<unsigned>(source) % emulated::kWarpLanes]);
}
template <typename T>
T __shfl_xor_sync(unsigned mask, T value, int bits) {
  const unsigned lane = fluvial::kernels::emulated::lane();
  return __shfl_sync(mask, value, static_cast<int>(lane ^ static_cast<unsigned>(bits)));
}
template <typename T>
T __shfl_down_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = fluvial::kernels::emulated::lane();
  const unsigned source = lane + delta < fluvial::kernels::emulated::kWarpLanes ? lane + delta : lane;
  return __shfl_sync(mask, value, static_cast<int>(source));
}
template <typename T>
T __shfl_up_sync(unsigned mask, T value, unsigned delta) {
  const unsigned lane = fluvial::kernels::emulated::lane();
  return __shfl_sync(mask, value, static_cast<int>(lane >= delta ? lane - delta : lane));
}
inline unsigned __ballot_sync(unsigned mask, bool vote) {
  namespace emulated = fluvial::kernels::emulated;
  emulated::check_mask(mask);
  const std::uint64_t* words = emulated::warp_exchange(vote ? 1 : 0);
  unsigned votes = 0;
  for (unsigned lane = 0; lane < emulated::kWarpLanes; ++lane) votes |= static_cast<unsigned>(words[lane]) << lane;
  return votes;
}
inline bool __any_sync(unsigned mask, bool vote) { return __ballot_sync(mask, vote) != 0; }

inline int __popc(unsigned bits) { return __builtin_popcount(bits); }
inline int __popcll(unsigned long long bits) { return __builtin_popcountll(bits); }
inline int __clz(int bits) { return bits == 0 ? 32 : __builtin_clz(static_cast<unsigned>(bits)); }
inline int __ffs(int bits) { return __builtin_ffs(bits); }

// One thread runs at a time, so plain reads and writes are atomic.
template <typename T, typename Next>
T emulated_exchange(T* at, Next next) {
  const T before = *at;
  *at = static_cast<T>(next(before));
  return before;
}
template <typename T>
T atomicAdd(T* at, T value) {
  return emulated_exchange(at, [value](T before) { return before + value; });
}
template <typename T>
T atomicMax(T* at, T value) {
  return emulated_exchange(at, [value](T before) { return before < value ? value : before; });
}
template <typename T>
T atomicMin(T* at, T value) {
  return emulated_exchange(at, [value](T before) { return value < before ? value : before; });
}
template <typename T>
T atomicOr(T* at, T value) {
  return emulated_exchange(at, [value](T before) { return before | value; });
}
inline void __threadfence() {}
