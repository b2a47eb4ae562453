// One, two or four elements at a time, and kernels that go over vectors with them. Internal.
#pragma once

#include "kernels/cuda/gpu.h"

namespace fluvial::kernels::FLUVIAL_GPU {

// Elements that load and store together, in as few accesses as their size takes.
template <typename T, int kCount>
struct __align__(sizeof(T) * kCount < 16 ? sizeof(T) * kCount : 16) Pack {
  T v[kCount];
  static constexpr int count = kCount;
};

template <typename P, typename T>
__device__ inline P load_pack(const T* from) {
#if defined(__CUDACC__)
  return *reinterpret_cast<const P*>(from);
#else
  P pack;
  std::memcpy(&pack, from, sizeof(P));
  return pack;
#endif
}
template <typename P, typename T>
__device__ inline void store_pack(T* to, const P& pack) {
#if defined(__CUDACC__)
  *reinterpret_cast<P*>(to) = pack;
#else
  std::memcpy(to, &pack, sizeof(P));
#endif
}

// Where an operation is in its vectors: kCount elements from `index` on.
template <int kCount>
struct At {
  std::uint64_t index;
  static constexpr int count = kCount;

  template <typename T>
  __device__ Pack<T, kCount> load(const T* vector) const {
    return load_pack<Pack<T, kCount>>(vector + index);
  }
  template <typename T>
  __device__ void store(T* vector, const Pack<T, kCount>& pack) const {
    store_pack(vector + index, pack);
  }
};

// Calls op.run(At<4>) or op.run(At<1>) for all of n elements; by fours when `by_four`.
template <typename Op>
__global__ void __launch_bounds__(256) each_kernel(Op op, std::uint64_t n, bool by_four) {
  const std::uint64_t fours = by_four ? n / 4 : 0;
  for (std::uint64_t i = thread_in_grid(); i < fours; i += threads_in_grid()) op.run(At<4>{4 * i});
  for (std::uint64_t i = 4 * fours + thread_in_grid(); i < n; i += threads_in_grid()) op.run(At<1>{i});
}

// As At<4>, of two pairs that lie apart.
struct Pairs {
  At<2> one;
  At<2> other;
  static constexpr int count = 4;

  template <typename T>
  static __device__ Pack<T, 4> joined(const Pack<T, 2>& one, const Pack<T, 2>& other) {
    return {{one.v[0], one.v[1], other.v[0], other.v[1]}};
  }
  template <typename T>
  __device__ Pack<T, 4> load(const T* vector) const {
    return joined(one.load(vector), other.load(vector));
  }
  template <typename T>
  __device__ void store(T* vector, const Pack<T, 4>& pack) const {
    one.store(vector, Pack<T, 2>{{pack.v[0], pack.v[1]}});
    other.store(vector, Pack<T, 2>{{pack.v[2], pack.v[3]}});
  }
};

// Calls op.run(Pairs) or op.run(At<1>) for all of n elements: for vectors of eight bytes an element, where four in a
// row would be two accesses that each leave out every other sixteen bytes. Pairs of neighbours are in a row.
template <typename Op>
__global__ void __launch_bounds__(256) pairs_kernel(Op op, std::uint64_t n, bool by_pairs) {
  constexpr std::uint64_t kOfWarp = 4 * kWarp;
  const std::uint64_t groups = by_pairs ? n / kOfWarp : 0;
  for (std::uint64_t group = thread_in_grid() / kWarp; group < groups; group += threads_in_grid() / kWarp) {
    const std::uint64_t first = kOfWarp * group + 2 * (threadIdx.x % kWarp);
    op.run(Pairs{{first}, {first + kOfWarp / 2}});
  }
  for (std::uint64_t i = kOfWarp * groups + thread_in_grid(); i < n; i += threads_in_grid()) op.run(At<1>{i});
}

template <typename T>
bool fits_four(const T* pointer) {
  constexpr std::uintptr_t kAlign = sizeof(T) * 4 < 16 ? sizeof(T) * 4 : 16;
  return reinterpret_cast<std::uintptr_t>(pointer) % kAlign == 0;
}

template <typename Op>
Status launch_each(const Op& op, std::uint64_t n, bool by_four, Stream& stream) {
  constexpr unsigned kThreads = 256;
  const std::uint64_t steps = by_four ? n / 4 + 3 : n;
  return launch(each_kernel<Op>, blocks_for((steps + kThreads - 1) / kThreads, stream), kThreads, stream, op, n,
                by_four);
}

template <typename Op>
Status launch_pairs(const Op& op, std::uint64_t n, bool by_pairs, Stream& stream) {
  constexpr unsigned kThreads = 256;
  const std::uint64_t steps = by_pairs ? n / 4 + 4 * kWarp : n;
  return launch(pairs_kernel<Op>, blocks_for((steps + kThreads - 1) / kThreads, stream), kThreads, stream, op, n,
                by_pairs);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
