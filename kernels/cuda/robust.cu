// Robust rules: device_robust.h.
#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/warp.h"
#include "kernels/device_robust.h"
#include "kernels/ops/robust.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr unsigned kSortThreads = 64;
constexpr unsigned kPairThreads = 256;
constexpr unsigned kLanes = 16;

struct UpdatesOnDevice {
  const float* x[kReduceInputsMax];
  std::uint32_t count;
};

UpdatesOnDevice pointers_of(std::span<const DeviceSpan<const float>> updates) {
  UpdatesOnDevice pointers{};
  pointers.count = static_cast<std::uint32_t>(updates.size());
  for (std::size_t k = 0; k < updates.size(); ++k) pointers.x[k] = updates[k].data();
  return pointers;
}

// The middle of the sorted keys; `keys` are kSortThreads apart.
__device__ inline float middle_of(const std::int32_t* keys, std::uint32_t count) {
  const auto low = static_cast<double>(ops::key_value(keys[(count - 1) / 2 * kSortThreads]));
  const auto high = static_cast<double>(ops::key_value(keys[count / 2 * kSortThreads]));
  return static_cast<float>((low + high) * 0.5);
}

__device__ inline float mean_between(const std::int32_t* keys, std::uint32_t count, std::uint32_t drop) {
  double sum = 0;
  for (std::uint32_t k = drop; k < count - drop; ++k)
    sum += static_cast<double>(ops::key_value(keys[k * kSortThreads]));
  return static_cast<float>(sum / static_cast<double>(count - 2 * drop));
}

// A thread takes a coordinate and sorts its values by insertion.
__global__ void __launch_bounds__(kSortThreads)
    combine_sorted(UpdatesOnDevice updates, std::uint64_t n, bool is_median, std::uint32_t drop, float* out) {
  __shared__ std::int32_t shared[kReduceInputsMax * kSortThreads];
  std::int32_t* const keys = shared + threadIdx.x;
  for (std::uint64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    for (std::uint32_t k = 0; k < updates.count; ++k) {
      const std::int32_t key = ops::sort_key(updates.x[k][i]);
      std::uint32_t at = k;
      for (; at > 0 && keys[(at - 1) * kSortThreads] > key; --at) {
        keys[at * kSortThreads] = keys[(at - 1) * kSortThreads];
      }
      keys[at * kSortThreads] = key;
    }
    out[i] = is_median ? middle_of(keys, updates.count) : mean_between(keys, updates.count, drop);
  }
}

// Of pair_index(i, j), i < j.
struct PairOf {
  std::uint32_t i, j;
  __device__ explicit PairOf(std::uint32_t pair) : i(pair), j(1) {
    for (; i >= j; ++j) i -= j;
  }
};

// Half a warp takes a pair in a piece: a thread is a lane. sums[piece * pairs + pair].
__global__ void __launch_bounds__(kPairThreads)
    sum_pieces(UpdatesOnDevice updates, std::uint64_t first, std::uint64_t n, std::uint32_t pieces, double* sums) {
  const std::uint32_t pairs = updates.count * (updates.count - 1) / 2;
  const std::uint64_t items = static_cast<std::uint64_t>(pieces) * pairs;
  const unsigned lane = lane_id() % kLanes;
  for (std::uint64_t two = thread_in_grid() / kWarp; 2 * two < items; two += threads_in_grid() / kWarp) {
    const std::uint64_t item = 2 * two + lane_id() / kLanes;
    double sum = 0;
    if (item < items) {
      const PairOf pair(static_cast<std::uint32_t>(item % pairs));
      const std::uint64_t begin = first + item / pairs * kDistancePiece;
      const std::uint64_t end = n - begin < kDistancePiece ? n : begin + kDistancePiece;
      for (std::uint64_t at = begin + lane; at < end; at += kLanes) {
        const double difference =
            static_cast<double>(updates.x[pair.i][at]) - static_cast<double>(updates.x[pair.j][at]);
        sum += difference * difference;
      }
    }
    for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
    if (item < items && lane == 0) sums[item] = sum;
  }
}

// Pieces in order.
__global__ void __launch_bounds__(kPairThreads)
    add_pieces(const double* sums, std::uint32_t pieces, std::uint32_t pairs, double* distances) {
  for (std::uint64_t pair = thread_in_grid(); pair < pairs; pair += threads_in_grid()) {
    double sum = distances[pair];
    for (std::uint32_t piece = 0; piece < pieces; ++piece)
      sum += sums[static_cast<std::uint64_t>(piece) * pairs + pair];
    distances[pair] = sum;
  }
}

}  // namespace

Status launch_sorted(std::span<const DeviceSpan<const float>> updates, bool is_median, std::size_t drop,
                     DeviceSpan<float> out, Stream& stream) {
  return launch(combine_sorted, blocks_for((out.size() + kSortThreads - 1) / kSortThreads, stream), kSortThreads,
                stream, pointers_of(updates), out.size(), is_median, drop, out.data());
}

Status launch_distances(std::span<const DeviceSpan<const float>> updates, DeviceSpan<double> distances,
                        DeviceSpan<std::byte> workspace, Stream& stream) {
  const std::uint64_t n = updates[0].size();
  const std::size_t pairs = distances.size();
  auto* const sums = reinterpret_cast<double*>(workspace.data());
  for (std::uint64_t first = 0; pairs > 0 && first < n; first += kDistancePieces * kDistancePiece) {
    const std::uint64_t left = (n - first + kDistancePiece - 1) / kDistancePiece;
    const std::uint64_t pieces = left < kDistancePieces ? left : kDistancePieces;
    const std::uint64_t warps = (pieces * pairs + 1) / 2;
    FLUVIAL_TRY(launch(sum_pieces, blocks_for((warps * kWarp + kPairThreads - 1) / kPairThreads, stream), kPairThreads,
                       stream, pointers_of(updates), first, n, pieces, sums));
    FLUVIAL_TRY(launch(add_pieces, blocks_for((pairs + kPairThreads - 1) / kPairThreads, stream), kPairThreads, stream,
                       sums, pieces, pairs, distances.data()));
  }
  return {};
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
