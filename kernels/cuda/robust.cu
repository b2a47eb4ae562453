// Robust rules: device_robust.h.
#include <algorithm>
#include <cmath>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/warp.h"
#include "kernels/ops/norm.h"
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

UpdatesOnDevice pointers_of(DeviceUpdates updates) {
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

// A key goes where it belongs among the `count` sorted ones before it; they are kSortThreads apart.
template <typename Key>
__device__ inline void insert(Key* keys, std::uint32_t count, Key key) {
  std::uint32_t at = count;
  for (; at > 0 && keys[(at - 1) * kSortThreads] > key; --at) {
    keys[at * kSortThreads] = keys[(at - 1) * kSortThreads];
  }
  keys[at * kSortThreads] = key;
}

enum class SortedRule : std::uint8_t { kMedian, kTrimmedMean, kBulyan };

// A thread takes a coordinate and sorts its values by insertion.
__global__ void __launch_bounds__(kSortThreads)
    combine_sorted(UpdatesOnDevice updates, std::uint64_t n, SortedRule rule, std::uint32_t drop, float* out) {
  __shared__ std::int32_t shared[kReduceInputsMax * kSortThreads];
  std::int32_t* const keys = shared + threadIdx.x;
  for (std::uint64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    for (std::uint32_t k = 0; k < updates.count; ++k) insert(keys, k, ops::sort_key(updates.x[k][i]));
    switch (rule) {
      case SortedRule::kMedian: out[i] = middle_of(keys, updates.count); break;
      case SortedRule::kTrimmedMean: out[i] = mean_between(keys, updates.count, drop); break;
      case SortedRule::kBulyan: out[i] = ops::mean_around_median(keys, kSortThreads, updates.count, drop); break;
    }
  }
}

// Where the weights reach half of their sum.
__device__ inline float weighted_middle_of(const std::int64_t* entries, std::uint32_t count, std::int64_t total) {
  double low = 0, high = 0;
  std::int64_t reached = 0;
  for (std::uint32_t k = 0; k < count && 2 * reached <= total; ++k) {
    const std::int64_t entry = entries[k * kSortThreads];
    if (2 * reached < total) low = ops::entry_value(entry);
    high = ops::entry_value(entry);
    reached += ops::entry_weight(entry);
  }
  return static_cast<float>((low + high) * 0.5);
}

__device__ inline float weighted_mean_between(const std::int64_t* entries, std::uint32_t count, std::int64_t from,
                                              std::int64_t to) {
  double sum = 0;
  std::int64_t reached = 0;
  for (std::uint32_t k = 0; k < count; ++k) {
    const std::int64_t entry = entries[k * kSortThreads];
    const std::int64_t after = reached + ops::entry_weight(entry);
    sum += static_cast<double>(ops::weight_between(reached, after, from, to)) * ops::entry_value(entry);
    reached = after;
  }
  return static_cast<float>(sum / static_cast<double>(to - from));
}

struct WeightsOnDevice {
  std::uint32_t of[kReduceInputsMax];
  std::int64_t total;
};

__global__ void __launch_bounds__(kSortThreads)
    combine_weighted(UpdatesOnDevice updates, WeightsOnDevice weights, std::uint64_t n, SortedRule rule,
                     std::int64_t drop, float* out) {
  __shared__ std::int64_t shared[kReduceInputsMax * kSortThreads];
  std::int64_t* const entries = shared + threadIdx.x;
  for (std::uint64_t i = thread_in_grid(); i < n; i += threads_in_grid()) {
    for (std::uint32_t k = 0; k < updates.count; ++k) {
      insert(entries, k, ops::weighted_entry(ops::sort_key(updates.x[k][i]), weights.of[k]));
    }
    out[i] = rule == SortedRule::kMedian ? weighted_middle_of(entries, updates.count, weights.total)
                                         : weighted_mean_between(entries, updates.count, drop, weights.total - drop);
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

struct Coefficients {
  double of[kReduceInputsMax];
};

// A block takes a piece: the center there, then half a warp an update. sums[piece * count + update].
__global__ void __launch_bounds__(kPairThreads)
    sum_center_pieces(UpdatesOnDevice updates, Coefficients coefficients, std::uint64_t first, std::uint64_t n,
                      std::uint32_t pieces, double* sums) {
  __shared__ double center[kDistancePiece];
  const unsigned lane = lane_id() % kLanes;
  for (std::uint32_t piece = blockIdx.x; piece < pieces; piece += gridDim.x) {
    const std::uint64_t begin = first + static_cast<std::uint64_t>(piece) * kDistancePiece;
    const auto length = static_cast<std::uint32_t>(n - begin < kDistancePiece ? n - begin : kDistancePiece);
    for (std::uint32_t i = threadIdx.x; i < length; i += kPairThreads) {
      double sum = 0;
      for (std::uint32_t k = 0; k < updates.count; ++k) {
        sum += static_cast<double>(updates.x[k][begin + i]) * coefficients.of[k];
      }
      center[i] = sum;
    }
    __syncthreads();
    for (std::uint32_t two = warp_id(); 2 * two < updates.count; two += kPairThreads / kWarp) {
      const std::uint32_t k = 2 * two + lane_id() / kLanes;
      double sum = 0;
      for (std::uint32_t i = lane; k < updates.count && i < length; i += kLanes) {
        const double difference = center[i] - static_cast<double>(updates.x[k][begin + i]);
        sum += difference * difference;
      }
      for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
      if (k < updates.count && lane == 0) sums[static_cast<std::uint64_t>(piece) * updates.count + k] = sum;
    }
    __syncthreads();
  }
}

// Pieces in order, for each of `count` sums.
__global__ void __launch_bounds__(kPairThreads)
    add_pieces(const double* sums, std::uint32_t pieces, std::uint32_t count, double* distances) {
  for (std::uint64_t i = thread_in_grid(); i < count; i += threads_in_grid()) {
    double sum = distances[i];
    for (std::uint32_t piece = 0; piece < pieces; ++piece) sum += sums[static_cast<std::uint64_t>(piece) * count + i];
    distances[i] = sum;
  }
}

// The lanes' sum to the factor, which takes its place: 1 where a value is not finite.
__global__ void __launch_bounds__(kWarp) find_factor(double* lanes, double bound) {
  if (threadIdx.x != 0) return;
  const double norm_squared = ops::add_lanes(lanes, kLanes);
  lanes[0] = std::isfinite(norm_squared) ? ops::clip_factor(norm_squared, bound) : 1.0;
}

struct ScaleOp {
  const double* found;  // or null
  double given;
  float* x;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const double factor = found == nullptr ? given : *found;
    if (factor == 1) return;
    Pack<float, kCount> values = at.load(x);
    for (float& value : values.v) value = static_cast<float>(static_cast<double>(value) * factor);
    at.store(x, values);
  }
};

unsigned sort_blocks(std::uint64_t n, Stream& stream) {
  return blocks_for((n + kSortThreads - 1) / kSortThreads, stream);
}

Status launch_weighted(DeviceUpdates updates, UpdateWeights weights, SortedRule rule, std::uint64_t drop,
                       DeviceSpan<float> out, Stream& stream) {
  WeightsOnDevice on_device{};
  for (std::size_t k = 0; k < weights.size(); ++k) {
    on_device.of[k] = weights[k];
    on_device.total += weights[k];
  }
  return launch(combine_weighted, sort_blocks(out.size(), stream), kSortThreads, stream, pointers_of(updates),
                on_device, out.size(), rule, static_cast<std::int64_t>(drop), out.data());
}

Status launch_sorted(DeviceUpdates updates, SortedRule rule, std::size_t drop, DeviceSpan<float> out, Stream& stream) {
  return launch(combine_sorted, sort_blocks(out.size(), stream), kSortThreads, stream, pointers_of(updates), out.size(),
                rule, static_cast<std::uint32_t>(drop), out.data());
}

// For kDistancePieces pieces at a time: sum(first, pieces, sums), then these onto the distances.
template <typename Sum>
Status launch_pieces(std::uint64_t n, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace, Stream& stream,
                     const Sum& sum) {
  auto* const sums = reinterpret_cast<double*>(workspace.data());
  for (std::uint64_t first = 0; first < n; first += kDistancePieces * kDistancePiece) {
    const std::uint64_t left = (n - first + kDistancePiece - 1) / kDistancePiece;
    const auto pieces = static_cast<std::uint32_t>(left < kDistancePieces ? left : kDistancePieces);
    FLUVIAL_TRY(sum(first, pieces, sums));
    FLUVIAL_TRY(launch(add_pieces, blocks_for((distances.size() + kPairThreads - 1) / kPairThreads, stream),
                       kPairThreads, stream, sums, pieces, distances.size(), distances.data()));
  }
  return {};
}

class GpuRobustOps final : public DeviceRobustOps {
 public:
  Status median(DeviceUpdates updates, UpdateWeights weights, DeviceSpan<std::byte>, DeviceSpan<float> out,
                Stream& stream) override {
    return weights.empty() ? launch_sorted(updates, SortedRule::kMedian, 0, out, stream)
                           : launch_weighted(updates, weights, SortedRule::kMedian, 0, out, stream);
  }
  Status trimmed_mean(DeviceUpdates updates, UpdateWeights weights, std::uint64_t drop, DeviceSpan<std::byte>,
                      DeviceSpan<float> out, Stream& stream) override {
    return weights.empty()
               ? launch_sorted(updates, SortedRule::kTrimmedMean, static_cast<std::size_t>(drop), out, stream)
               : launch_weighted(updates, weights, SortedRule::kTrimmedMean, drop, out, stream);
  }
  Status bulyan(DeviceUpdates chosen, std::size_t f, DeviceSpan<std::byte>, DeviceSpan<float> out,
                Stream& stream) override {
    return launch_sorted(chosen, SortedRule::kBulyan, f, out, stream);
  }
  Status add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                       Stream& stream) override {
    const std::uint64_t n = updates[0].size();
    return launch_pieces(n, distances, workspace, stream, [&](std::uint64_t first, std::uint32_t pieces, double* sums) {
      const std::uint64_t warps = (pieces * distances.size() + 1) / 2;
      return launch(sum_pieces, blocks_for((warps * kWarp + kPairThreads - 1) / kPairThreads, stream), kPairThreads,
                    stream, pointers_of(updates), first, n, pieces, sums);
    });
  }
  Status add_center_distances(DeviceUpdates updates, std::span<const double> coefficients, DeviceSpan<double> distances,
                              DeviceSpan<std::byte> workspace, Stream& stream) override {
    Coefficients on_device{};
    std::copy(coefficients.begin(), coefficients.end(), on_device.of);
    const std::uint64_t n = updates[0].size();
    return launch_pieces(n, distances, workspace, stream, [&](std::uint64_t first, std::uint32_t pieces, double* sums) {
      return launch(sum_center_pieces, blocks_for(pieces, stream), kPairThreads, stream, pointers_of(updates),
                    on_device, first, n, pieces, sums);
    });
  }
  Status scale(DeviceSpan<float> values, double factor, Stream& stream) override {
    return launch_each(ScaleOp{nullptr, factor, values.data()}, values.size(), fits_four(values.data()), stream);
  }
  Status clip(DeviceSpan<float> values, DeviceSpan<double> lanes, double bound, Stream& stream) override {
    FLUVIAL_TRY(launch(find_factor, 1U, kWarp, stream, lanes.data(), bound));
    return launch_each(ScaleOp{lanes.data(), 1, values.data()}, values.size(), fits_four(values.data()), stream);
  }
};

}  // namespace

DeviceRobustOps& robust_ops() {
  static GpuRobustOps ops;
  return ops;
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
