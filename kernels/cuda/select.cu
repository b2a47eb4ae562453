#include "kernels/cuda/packs.h"
#include "kernels/cuda/select.h"
#include "kernels/cuda/warp.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kScanThreads = 1024;
constexpr std::uint32_t kAll = 0xffffffffU;

// The digits that magnitudes are selected by: of those whose bits above the digit are as `selected` has them.
template <int kPass>
struct Digit {
  static constexpr int kShift = kPass == 0 ? 20 : kPass == 1 ? 10 : 0;
  static constexpr std::uint32_t kBins = kPass == 0 ? 2048 : 1024;
  __device__ static bool counts(std::uint32_t bits, std::uint32_t prefix) {
    return kPass == 0 || bits >> (kShift + 10) == prefix >> (kShift + 10);
  }
  __device__ static std::uint32_t of(std::uint32_t bits) { return bits >> kShift & (kBins - 1); }
};

// Neighbours often fall into one bin: a thread adds a run of equal digits at once.
template <int kPass>
__global__ void __launch_bounds__(kThreads)
    count_digits(const float* x, std::uint64_t n, bool by_four, const Selected* selected, std::uint32_t* bins) {
  __shared__ std::uint32_t counts[kSelectBins];
  if (selected->is_settled != 0) return;
  for (std::uint32_t i = threadIdx.x; i < kSelectBins; i += kThreads) counts[i] = 0;
  __syncthreads();
  const std::uint32_t prefix = selected->bits;
  const auto count = [&](float value) {
    const std::uint32_t bits = ops::magnitude_bits(value);
    if (Digit<kPass>::counts(bits, prefix)) atomicAdd(&counts[Digit<kPass>::of(bits)], 1U);
  };
  const std::uint64_t fours = by_four ? n / 4 : 0;
  for (std::uint64_t i = thread_in_grid(); i < fours; i += threads_in_grid()) {
    const auto pack = load_pack<Pack<float, 4>>(x + 4 * i);
    for (const float value : pack.v) count(value);
  }
  for (std::uint64_t i = 4 * fours + thread_in_grid(); i < n; i += threads_in_grid()) count(x[i]);
  __syncthreads();
  for (std::uint32_t i = threadIdx.x; i < Digit<kPass>::kBins; i += kThreads) {
    if (counts[i] != 0) atomicAdd(&bins[i], counts[i]);
  }
}

// The greatest digit with at least `wanted` magnitudes at or above it; takes those above it off `wanted`. One block;
// leaves the bins empty.
template <int kPass>
__global__ void __launch_bounds__(kScanThreads) choose_digit(Selected* selected, std::uint32_t* bins) {
  __shared__ std::uint32_t shared[kWarp + 1];
  constexpr std::uint32_t kEach = Digit<kPass>::kBins / kScanThreads;
  if (selected->is_settled != 0) return;
  const std::uint32_t wanted = selected->wanted;
  std::uint32_t counts[kEach];
  std::uint32_t sum = 0;
  for (std::uint32_t i = 0; i < kEach; ++i) {
    const std::uint32_t digit = Digit<kPass>::kBins - 1 - (threadIdx.x * kEach + i);
    counts[i] = bins[digit];
    bins[digit] = 0;
    sum += counts[i];
  }
  std::uint32_t total = 0;
  std::uint32_t above = block_sum_before(sum, shared, &total);
  for (std::uint32_t i = 0; i < kEach; ++i) {
    if (above < wanted && wanted - above <= counts[i]) {  // one thread, once
      const std::uint32_t digit = Digit<kPass>::kBins - 1 - (threadIdx.x * kEach + i);
      selected->bits |= digit << Digit<kPass>::kShift;
      selected->wanted = wanted - above;
    }
    above += counts[i];
  }
  if (kPass < 2) return;
  __syncthreads();
  if (threadIdx.x == 0 && selected->bits == 0) {  // fewer than k are not zero: all of those, and no zero
    selected->bits = 1;
    selected->wanted = kAll;
  }
}

__global__ void __launch_bounds__(kWarp) begin_select(Selected* selected, std::uint32_t k) {
  if (threadIdx.x != 0) return;
  *selected = {.bits = 0, .wanted = k, .is_settled = 0, .not_finite_at = ChunkOutcome::kNone};
}

__global__ void __launch_bounds__(kThreads)
    draw_sample(const float* x, std::uint64_t stride, std::uint64_t size, float* sample) {
  for (std::uint64_t i = thread_in_grid(); i < size; i += threads_in_grid()) sample[i] = x[sample_place(i, stride)];
}

// The sample's threshold: all values that reach it are sent ...
__global__ void __launch_bounds__(kWarp) take_all_ties(Selected* selected) {
  if (threadIdx.x == 0) selected->wanted = kAll;
}

// ... unless these are too few or too many.
__global__ void __launch_bounds__(kWarp)
    judge_sample(Selected* selected, const TileEntries* total, std::uint32_t k, std::uint64_t room) {
  if (threadIdx.x != 0) return;
  if (sample_serves(total->above, k, room)) {
    selected->is_settled = 1;
  } else {
    selected->bits = 0;
    selected->wanted = k;
  }
}

__global__ void __launch_bounds__(kThreads)
    count_entries(const float* x, Tiling tiling, bool by_four, Selected* selected, TileEntries* tiles) {
  __shared__ std::uint32_t shared[kWarp + 1];
  if (selected->is_settled != 0) return;
  const std::uint32_t threshold = selected->bits;
  for (std::uint32_t tile = blockIdx.x; tile < tiling.tiles; tile += gridDim.x) {
    const std::uint64_t first_value = tiling.first_value(tile);
    const float* const values = x + first_value;
    const std::uint32_t length = tiling.length(tile);
    std::uint32_t counts = 0;  // above in the lower half, equal in the upper: at most 4,096 each
    const auto count = [&](float value, std::uint32_t index) {
      const std::uint32_t bits = ops::magnitude_bits(value);
      counts += (bits > threshold ? 1U : 0U) + (bits == threshold ? 0x10000U : 0U);
      if (bits >= ops::kInfinityBits) {
        atomicMin(&selected->not_finite_at, static_cast<ChunkOutcome::Coordinate>(first_value + index));
      }
    };
    FLUVIAL_UNROLL
    for (std::uint32_t j = 0; j < kSelectTile / (4 * kThreads); ++j) {
      const std::uint32_t first = 4 * (threadIdx.x + j * kThreads);
      if (by_four && first + 4 <= length) {
        const auto pack = load_pack<Pack<float, 4>>(values + first);
        for (std::uint32_t i = 0; i < 4; ++i) count(pack.v[i], first + i);
      } else {
        for (std::uint32_t i = first; i < first + 4 && i < length; ++i) count(values[i], i);
      }
    }
    std::uint32_t total = 0;
    block_sum_before(counts, shared, &total);
    if (threadIdx.x == 0) tiles[tile] = {total & 0xffffU, total >> 16};
    __syncthreads();
  }
}

// Turns each tile's entries and ties into the counts before it: ties first, since they decide what is an entry.
__global__ void __launch_bounds__(kScanThreads)
    scan_entries(std::uint32_t tile_count, const Selected* selected, TileEntries* tiles) {
  __shared__ std::uint32_t shared[kWarp + 1];
  if (selected->is_settled != 0) return;
  const std::uint32_t wanted = selected->wanted;
  const std::uint32_t each = (tile_count + kScanThreads - 1) / kScanThreads;
  const std::uint32_t begin = threadIdx.x * each < tile_count ? threadIdx.x * each : tile_count;
  const std::uint32_t end = begin + each < tile_count ? begin + each : tile_count;
  std::uint32_t ties = 0;
  for (std::uint32_t tile = begin; tile < end; ++tile) ties += tiles[tile].equal;
  std::uint32_t total = 0;
  const std::uint32_t ties_before = block_sum_before(ties, shared, &total);
  __syncthreads();
  // Of `count` ties after `before` others, those that are sent.
  const auto sent = [wanted](std::uint32_t before, std::uint32_t count) {
    const std::uint32_t left = before < wanted ? wanted - before : 0;
    return count < left ? count : left;
  };
  std::uint32_t entries = sent(ties_before, ties);
  for (std::uint32_t tile = begin; tile < end; ++tile) entries += tiles[tile].above;
  std::uint32_t before = block_sum_before(entries, shared, &total);
  std::uint32_t tie = ties_before;
  for (std::uint32_t tile = begin; tile < end; ++tile) {
    const TileEntries here = tiles[tile];
    tiles[tile] = {before, tie};
    before += here.above + sent(tie, here.equal);
    tie += here.equal;
  }
  if (threadIdx.x == 0) tiles[tile_count] = {total, 0};
}

template <int kPass>
Status launch_digit(DeviceSpan<const float> vector, const SelectMemory& memory, Stream& stream) {
  const std::uint64_t blocks = (vector.size() + 16 * kThreads - 1) / (16 * kThreads);
  FLUVIAL_TRY(launch(count_digits<kPass>, blocks_for(blocks, stream), kThreads, stream, vector.data(), vector.size(),
                     fits_four(vector.data()), memory.selected, memory.bins));
  return launch(choose_digit<kPass>, 1U, kScanThreads, stream, memory.selected, memory.bins);
}

Status launch_digits(DeviceSpan<const float> vector, const SelectMemory& memory, Stream& stream) {
  FLUVIAL_TRY(launch_digit<0>(vector, memory, stream));
  FLUVIAL_TRY(launch_digit<1>(vector, memory, stream));
  return launch_digit<2>(vector, memory, stream);
}

Status launch_count(DeviceSpan<const float> vector, const Tiling& tiling, const SelectMemory& memory, Stream& stream) {
  const bool by_four = fits_four(vector.data()) && tiling.chunk_values % 4 == 0;
  FLUVIAL_TRY(launch(count_entries, blocks_for(tiling.tiles, stream), kThreads, stream, vector.data(), tiling, by_four,
                     memory.selected, memory.tiles));
  return launch(scan_entries, 1U, kScanThreads, stream, tiling.tiles, memory.selected, memory.tiles);
}

Status launch_sample(DeviceSpan<const float> vector, std::uint64_t k, const SamplePlan& sample, const Tiling& tiling,
                     const SelectMemory& memory, Stream& stream) {
  FLUVIAL_TRY(launch(begin_select, 1U, kWarp, stream, memory.selected, sample.rank));
  FLUVIAL_TRY(launch(draw_sample, blocks_for((sample.size + kThreads - 1) / kThreads, stream), kThreads, stream,
                     vector.data(), vector.size() / sample.size, sample.size, memory.sample));
  FLUVIAL_TRY(launch_digits({memory.sample, sample.size}, memory, stream));
  FLUVIAL_TRY(launch(take_all_ties, 1U, kWarp, stream, memory.selected));
  FLUVIAL_TRY(launch_count(vector, tiling, memory, stream));
  return launch(judge_sample, 1U, kWarp, stream, memory.selected, memory.tiles + tiling.tiles, k, sample.room);
}

}  // namespace

Status launch_select(DeviceSpan<const float> vector, std::uint64_t k, const SamplePlan& sample, const Tiling& tiling,
                     const SelectMemory& memory, Stream& stream) {
  FLUVIAL_TRY(stream.backend().zero(memory.bins, kSelectBins * sizeof(std::uint32_t), stream.get()));
  if (sample.rank > 0) {
    FLUVIAL_TRY(launch_sample(vector, k, sample, tiling, memory, stream));
  } else {
    FLUVIAL_TRY(launch(begin_select, 1U, kWarp, stream, memory.selected, k));
  }
  FLUVIAL_TRY(launch_digits(vector, memory, stream));
  return launch_count(vector, tiling, memory, stream);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
