// Sums of squares and products in the CPU's order: lane i of 16 adds the terms i, i + 16, ... one after the other. So
// 16 threads of one block add, while the others fetch what comes next. Internal.
#pragma once

#include "kernels/cuda/backend.h"
#include "kernels/ops/norm.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr unsigned kSquareThreads = 512;
inline constexpr unsigned kSquareLanes = std::tuple_size_v<SquareLanes>;
inline constexpr std::uint32_t kSquareTile = 2048;  // a multiple of the lanes

// The sum of this thread's lane, where it has one: `sum` and term.at(i) for its part of n. All kSquareThreads call it.
template <typename Term>
__device__ double add_in_lanes(double sum, std::uint64_t n, const Term& term) {
  __shared__ double tiles[2][kSquareTile];
  const auto fetch = [&](std::uint64_t first, double* to, unsigned thread, unsigned threads) {
    for (std::uint32_t i = thread; i < kSquareTile && first + i < n; i += threads) to[i] = term.at(first + i);
  };
  fetch(0, tiles[0], threadIdx.x, kSquareThreads);
  __syncthreads();
  unsigned which = 0;
  for (std::uint64_t first = 0; first < n; first += kSquareTile) {
    if (threadIdx.x < kSquareLanes) {
      const std::uint64_t left = n - first;
      const std::uint32_t length = left < kSquareTile ? static_cast<std::uint32_t>(left) : kSquareTile;
      for (std::uint32_t i = threadIdx.x; i < length; i += kSquareLanes) sum += tiles[which][i];
    } else if (threadIdx.x >= kWarp) {
      fetch(first + kSquareTile, tiles[1 - which], threadIdx.x - kWarp, kSquareThreads - kWarp);
    }
    which = 1 - which;
    __syncthreads();
  }
  return sum;
}

// The lanes' sum, for all threads.
__device__ inline double total_of_lanes(double sum) {
  __shared__ double lanes[kSquareLanes];
  if (threadIdx.x < kSquareLanes) lanes[threadIdx.x] = sum;
  __syncthreads();
  if (threadIdx.x == 0) ops::add_lanes(lanes, kSquareLanes);
  __syncthreads();
  const double total = lanes[0];
  __syncthreads();
  return total;
}

// The square of source.at(i), a float.
template <typename Source>
struct SquareOf {
  Source source;
  __device__ double at(std::uint64_t index) const {
    const double wide = static_cast<double>(source.at(index));
    return wide * wide;
  }
};

struct VectorAt {
  const float* x;
  __device__ float at(std::uint64_t index) const { return x[index]; }
};

// lanes += the squares of source.at(0) to source.at(n - 1). One block.
template <typename Source>
__global__ void __launch_bounds__(kSquareThreads) add_squares_of(Source source, std::uint64_t n, double* lanes) {
  const double before = threadIdx.x < kSquareLanes ? lanes[threadIdx.x] : 0;
  const double sum = add_in_lanes(before, n, SquareOf<Source>{source});
  if (threadIdx.x < kSquareLanes) lanes[threadIdx.x] = sum;
}

template <typename Source>
Status launch_squares(const Source& source, std::uint64_t n, DeviceSpan<double> lanes, Stream& stream) {
  return launch(add_squares_of<Source>, 1U, kSquareThreads, stream, source, n, lanes.data());
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
