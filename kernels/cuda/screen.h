// Finite, norm and maximum in one pass over anything that has a value at each coordinate (device_vector.h says in which
// order squares are added). Internal.
#pragma once

#include "kernels/cuda/packs.h"
#include "kernels/cuda/warp.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr unsigned kTileThreads = 256;
inline constexpr std::uint64_t kTileValues = 4096;
inline constexpr unsigned kTileSums = 1024;

struct TileReport {
  double squares;
  std::uint64_t max_bits;
};

// A thread's findings.
struct Seen {
  double squares = 0;
  std::uint32_t max_bits = 0;

  __device__ void take(float value) {
    const std::uint32_t bits = ops::magnitude_bits(value);
    max_bits = bits > max_bits ? bits : max_bits;
    const double wide = static_cast<double>(value);
    squares += wide * wide;
  }
};

__device__ inline void report_unless_finite(float value, std::uint64_t coordinate, ChunkOutcome* outcome) {
  if (ops::magnitude_bits(value) < ops::kInfinityBits) return;
  atomicMin(&outcome->not_finite_at, static_cast<ChunkOutcome::Coordinate>(coordinate));
}

// The block's sum and maximum, in thread 0. All threads call it; `squares` and `most` hold 32 numbers.
__device__ inline Seen block_seen(const Seen& seen, double* squares, std::uint32_t* most) {
  const double sum = warp_tree_sum(seen.squares);
  const std::uint32_t bits = warp_max(seen.max_bits);
  if (lane_id() == 0) {
    squares[warp_id()] = sum;
    most[warp_id()] = bits;
  }
  __syncthreads();
  Seen all;
  if (threadIdx.x == 0) {
    all = {squares[0], most[0]};
    for (unsigned warp = 1; warp < blockDim.x / kWarp; ++warp) {
      all.squares += squares[warp];
      all.max_bits = most[warp] > all.max_bits ? most[warp] : all.max_bits;
    }
  }
  __syncthreads();
  return all;
}

// For a source that makes a tile's values first: whether this thread saw nothing wrong with them.
template <typename Source>
__device__ bool open_tile(const Source& source, std::uint64_t tile) {
  if constexpr (requires { source.open(tile); }) {
    return source.open(tile);
  } else {
    return true;
  }
}

// A thread's values of a tile that is whole, from `first` on: all loads are under way before the first value is used.
template <typename Source>
__device__ Seen see_whole(const Source& source, std::uint64_t first, std::uint64_t first_value, ChunkOutcome* outcome,
                          bool* fine) {
  constexpr unsigned kPacks = kTileValues / kTileThreads / 4;
  Pack<float, 4> values[kPacks];
  FLUVIAL_UNROLL
  for (unsigned j = 0; j < kPacks; ++j) values[j] = source.value(At<4>{first + 4 * kTileThreads * j});
  FLUVIAL_UNROLL
  for (unsigned j = 0; j < kPacks; ++j) *fine = source.fine(At<4>{first + 4 * kTileThreads * j}) && *fine;
  Seen seen;
  FLUVIAL_UNROLL
  for (unsigned j = 0; j < kPacks; ++j) {
    for (const float value : values[j].v) seen.take(value);
  }
  if (seen.max_bits < ops::kInfinityBits) return seen;
  FLUVIAL_UNROLL
  for (unsigned j = 0; j < kPacks; ++j) {
    for (unsigned i = 0; i < 4; ++i) {
      report_unless_finite(values[j].v[i], first_value + first + 4 * kTileThreads * j + i, outcome);
    }
  }
  return seen;
}

// The same for a tile that ends early, or whose values do not come by fours.
template <typename Source>
__device__ Seen see_part(const Source& source, std::uint64_t first, std::uint64_t n, std::uint64_t first_value,
                         ChunkOutcome* outcome, bool* fine) {
  Seen seen;
  for (std::uint64_t begin = first; begin < first + kTileValues && begin < n; begin += 4 * kTileThreads) {
    for (std::uint64_t i = begin; i < begin + 4 && i < n; ++i) {
      const float value = source.value(At<1>{i}).v[0];
      seen.take(value);
      report_unless_finite(value, first_value + i, outcome);
      *fine = source.fine(At<1>{i}) && *fine;
    }
  }
  return seen;
}

// Source::value(At) gives values, Source::fine(At, values) whether they may stand in a chunk, and
// Source::well_formed(i) checks part i of Source::parts() of the chunk's frame.
template <typename Source>
__global__ void __launch_bounds__(kTileThreads) screen_tiles(Source source, std::uint64_t n, std::uint64_t first_value,
                                                             bool by_four, TileReport* reports, ChunkOutcome* outcome) {
  __shared__ double squares[kWarp];
  __shared__ std::uint32_t most[kWarp];
  for (std::uint64_t part = thread_in_grid(); part < source.parts(); part += threads_in_grid()) {
    if (!source.well_formed(part)) outcome->malformed = 1;
  }
  const std::uint64_t tiles = (n + kTileValues - 1) / kTileValues;
  for (std::uint64_t tile = blockIdx.x; tile < tiles; tile += gridDim.x) {
    bool fine = open_tile(source, tile);
    const std::uint64_t first = tile * kTileValues + 4 * threadIdx.x;
    const Seen seen = by_four && (tile + 1) * kTileValues <= n
                          ? see_whole(source, first, first_value, outcome, &fine)
                          : see_part(source, first, n, first_value, outcome, &fine);
    if (!fine) outcome->malformed = 1;
    const Seen all = block_seen(seen, squares, most);
    if (threadIdx.x == 0) reports[tile] = {all.squares, all.max_bits};
  }
}

// One block of kTileSums threads. A kernel of one source, so a template to be defined in several.
template <int kOnly = 0>
__global__ void __launch_bounds__(kTileSums)
    screen_sums(const TileReport* reports, std::uint64_t tiles, ChunkOutcome* outcome) {
  __shared__ double squares[kWarp];
  __shared__ std::uint32_t most[kWarp];
  Seen seen;
  for (std::uint64_t tile = threadIdx.x; tile < tiles; tile += kTileSums) {
    const TileReport report = reports[tile];
    seen.squares += report.squares;
    const auto bits = static_cast<std::uint32_t>(report.max_bits);
    seen.max_bits = bits > seen.max_bits ? bits : seen.max_bits;
  }
  const Seen all = block_seen(seen, squares, most);
  if (threadIdx.x == 0) {
    outcome->norm_squared = all.squares;
    outcome->max_bits = all.max_bits;
  }
}

// The workspace's head, of 16 bytes: whether the chunk that was screened may be added.
inline constexpr std::size_t kVerdictBytes = 16;

// The workspace holds device_screen_workspace_bytes(n).
template <typename Source>
Status launch_screen(const Source& source, std::uint64_t n, std::uint64_t first_value, bool by_four,
                     DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) {
  auto* const reports = reinterpret_cast<TileReport*>(workspace.data() + kVerdictBytes);
  const std::uint64_t tiles = (n + kTileValues - 1) / kTileValues;
  FLUVIAL_TRY(launch(screen_tiles<Source>, blocks_for(tiles, stream), kTileThreads, stream, source, n, first_value,
                     by_four, reports, outcome));
  return launch(screen_sums<>, 1U, kTileSums, stream, reports, tiles, outcome);
}

// After a screen into the same outcome and workspace.
template <int kOnly = 0>
__global__ void __launch_bounds__(kWarp) decide(double factor, ChunkOutcome* outcome, std::uint32_t* may_add) {
  if (threadIdx.x != 0) return;
  const bool passed = outcome->malformed == 0 && outcome->not_finite_at == ChunkOutcome::kNone;
  const double most = ops::fixed_product(ops::bits_float(outcome->max_bits), factor);
  if (passed && most > ops::kTermLimit) outcome->malformed = ChunkOutcome::kBeyondScale;
  *may_add = passed && most <= ops::kTermLimit ? 1 : 0;
}

// Where kernels after it in the stream find whether the chunk may be added.
inline Result<const std::uint32_t*> launch_verdict(double factor, DeviceSpan<std::byte> workspace,
                                                   ChunkOutcome* outcome, Stream& stream) {
  auto* const may_add = reinterpret_cast<std::uint32_t*>(workspace.data());
  FLUVIAL_TRY(launch(decide<>, 1U, kWarp, stream, factor, outcome, may_add));
  return may_add;
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
