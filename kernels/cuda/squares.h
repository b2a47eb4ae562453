// Sums of squares in the CPU's order (optimizer.h): lane i of 16 adds the squares at i, i + 16, ... one after the
// other. So 16 threads of one block add, while the others fetch what comes next. Internal.
#pragma once

#include "kernels/cuda/backend.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr unsigned kSquareThreads = 512;
inline constexpr unsigned kSquareLanes = std::tuple_size_v<SquareLanes>;
inline constexpr std::uint32_t kSquareTile = 4096;  // a multiple of the lanes

// lanes += the squares of source.at(0) to source.at(n - 1). One block.
template <typename Source>
__global__ void __launch_bounds__(kSquareThreads) add_squares_of(Source source, std::uint64_t n, double* lanes) {
  __shared__ float tiles[2][kSquareTile];
  const auto fetch = [&](std::uint64_t first, float* to, unsigned thread, unsigned threads) {
    for (std::uint32_t i = thread; i < kSquareTile && first + i < n; i += threads) to[i] = source.at(first + i);
  };
  const bool adds = threadIdx.x < kSquareLanes;
  double sum = adds ? lanes[threadIdx.x] : 0;
  fetch(0, tiles[0], threadIdx.x, kSquareThreads);
  __syncthreads();
  unsigned which = 0;
  for (std::uint64_t first = 0; first < n; first += kSquareTile) {
    if (adds) {
      const std::uint64_t left = n - first;
      const std::uint32_t length = left < kSquareTile ? static_cast<std::uint32_t>(left) : kSquareTile;
      for (std::uint32_t i = threadIdx.x; i < length; i += kSquareLanes) {
        const double wide = static_cast<double>(tiles[which][i]);
        sum += wide * wide;
      }
    } else if (threadIdx.x >= kWarp) {
      fetch(first + kSquareTile, tiles[1 - which], threadIdx.x - kWarp, kSquareThreads - kWarp);
    }
    which = 1 - which;
    __syncthreads();
  }
  if (adds) lanes[threadIdx.x] = sum;
}

struct SquaresOfVector {
  const float* x;
  __device__ float at(std::uint64_t index) const { return x[index]; }
};

template <typename Source>
Status launch_squares(const Source& source, std::uint64_t n, DeviceSpan<double> lanes, Stream& stream) {
  return launch(add_squares_of<Source>, 1U, kSquareThreads, stream, source, n, lanes.data());
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
