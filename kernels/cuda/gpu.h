// What a kernel's source includes first. Under nvcc it is CUDA; under any other compiler the same source becomes plain
// functions that the emulator runs (emulated/emulator.h). Both live in the namespace FLUVIAL_GPU, so that a program may
// hold both.
#pragma once

#if defined(__CUDACC__)
#include <cuda_runtime.h>
#define FLUVIAL_GPU cuda
#define FLUVIAL_UNROLL _Pragma("unroll")
#else
#include "kernels/cuda/emulated/emulator.h"
#include "kernels/cuda/emulated/memory.h"
#include "kernels/cuda/emulated/streams.h"
#define FLUVIAL_GPU emulated
#define FLUVIAL_UNROLL
#endif

#include <cstddef>
#include <cstdint>
#include <memory>
#include <optional>

#include "kernels/device.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr unsigned kWarp = 32;
inline constexpr unsigned kFullMask = 0xffffffffU;

// What Stream::get() points to.
struct StreamState {
#if defined(__CUDACC__)
  cudaStream_t stream = nullptr;
#else
  std::shared_ptr<Queue> queue;
#endif
  int device = 0;
  unsigned multiprocessors = 1;
};

inline StreamState& state_of(Stream& stream) { return *static_cast<StreamState*>(stream.get()); }

// Blocks for `count` pieces of work of one block each, where a block may take several: enough to fill the device.
inline unsigned blocks_for(std::uint64_t count, Stream& stream) {
  const std::uint64_t most = std::uint64_t{32} * state_of(stream).multiprocessors;
  const std::uint64_t blocks = count < most ? count : most;
  return blocks == 0 ? 1U : static_cast<unsigned>(blocks);
}

#if defined(__CUDACC__)
Status check_launch(cudaError_t error);

template <typename... Parameters, typename... Arguments>
Status launch(void (*kernel)(Parameters...), unsigned grid, unsigned block, Stream& stream, Arguments... arguments) {
  if (const cudaError_t error = cudaSetDevice(state_of(stream).device); error != cudaSuccess)
    return check_launch(error);
  kernel<<<grid, block, 0, state_of(stream).stream>>>(static_cast<Parameters>(arguments)...);
  return check_launch(cudaGetLastError());
}
#else
template <typename... Parameters, typename... Arguments>
Status launch(void (*kernel)(Parameters...), unsigned grid, unsigned block, Stream& stream, Arguments... arguments) {
  put(*state_of(stream).queue, [=, device = state_of(stream).device] {
    std::optional<OnlyMemoryOf> memory;
    if (!runs_at_once()) memory.emplace(device);  // when one thing runs at a time
    auto call = [&] { kernel(static_cast<Parameters>(arguments)...); };
    run_blocks(grid, block, [](void* state) { (*static_cast<decltype(call)*>(state))(); }, &call);
  });
  return {};
}
#endif

// Of the grid's threads in a row.
__device__ inline std::uint64_t thread_in_grid() {
  return static_cast<std::uint64_t>(blockIdx.x) * blockDim.x + threadIdx.x;
}
__device__ inline std::uint64_t threads_in_grid() { return static_cast<std::uint64_t>(gridDim.x) * blockDim.x; }

}  // namespace fluvial::kernels::FLUVIAL_GPU
