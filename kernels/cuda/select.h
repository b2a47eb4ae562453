// Which coordinates topk sends, found on the device without the host: the threshold by radix selection on the
// magnitudes (11, 10 and 10 bits), then the number of entries in every tile of 4,096 values and the place of its first.
// A threshold from a sample is found in the same way. If too few or too many values reach it, the exact one follows;
// otherwise the kernels that would find the exact one end at once. Internal.
#pragma once

#include "kernels/cuda/backend.h"
#include "kernels/ops/bits.h"
#include "kernels/topk_sample.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr std::uint32_t kSelectTile = 4096;
inline constexpr std::uint32_t kSelectBins = 2048;

// The selection so far; in the end magnitudes above `bits` are sent, and the first `wanted` equal to it.
struct Selected {
  std::uint32_t bits;
  std::uint32_t wanted;
  std::uint64_t is_settled;  // by the sample: nothing changes any more
  ChunkOutcome::Coordinate not_finite_at;
};

// A tile's counts. Before the scan: its entries above the threshold and equal to it; after the scan: the entries and
// ties of the whole vector before this tile.
struct TileEntries {
  std::uint32_t above;
  std::uint32_t equal;
};

// Tiles are cut from chunks, so that none spans two.
struct Tiling {
  std::uint64_t value_count = 0;
  std::uint64_t chunk_values = 1;
  std::uint32_t tiles_in_chunk = 1;
  std::uint32_t tiles = 0;

  static Tiling of(const ChunkLayout& layout) {
    const std::uint64_t in_chunk = (layout.chunk_values + kSelectTile - 1) / kSelectTile;
    const std::uint64_t chunks = layout.chunk_count();
    const std::uint64_t last = chunks == 0 ? 0 : (layout.size(chunks - 1) + kSelectTile - 1) / kSelectTile;
    return {.value_count = layout.value_count,
            .chunk_values = layout.chunk_values,
            .tiles_in_chunk = static_cast<std::uint32_t>(in_chunk),
            .tiles = static_cast<std::uint32_t>(chunks == 0 ? 0 : (chunks - 1) * in_chunk + last)};
  }
  __device__ std::uint64_t first_value(std::uint32_t tile) const {
    return tile / tiles_in_chunk * chunk_values + static_cast<std::uint64_t>(tile % tiles_in_chunk) * kSelectTile;
  }
  // How many values of the vector are in the tile.
  __device__ std::uint32_t length(std::uint32_t tile) const {
    const std::uint64_t chunk_begin = tile / tiles_in_chunk * chunk_values;
    const std::uint64_t in_chunk = value_count - chunk_begin < chunk_values ? value_count - chunk_begin : chunk_values;
    const std::uint64_t left = in_chunk - static_cast<std::uint64_t>(tile % tiles_in_chunk) * kSelectTile;
    return left < kSelectTile ? static_cast<std::uint32_t>(left) : kSelectTile;
  }
};

// Where things are in the workspace.
struct SelectMemory {
  Selected* selected;
  std::uint32_t* bins;
  TileEntries* tiles;      // tiling.tiles + 1: the last has the totals
  std::uint32_t* indices;  // of one chunk's entries, within the chunk
  std::uint32_t* gap_sums;
  float* sample;
};

inline constexpr std::uint32_t kGapTile = 1024;

struct SelectSizes {
  std::uint64_t tiles;
  std::uint64_t entries;  // the most that a chunk has
  std::uint64_t sample;
  std::uint64_t gap_sums() const { return entries / kGapTile + 2; }
  std::size_t bytes() const {
    return kHead + kSelectBins * 4 + (tiles + 1) * sizeof(TileEntries) + (entries + gap_sums() + sample) * 4;
  }
  static constexpr std::size_t kHead = 64;
};

inline SelectMemory memory_of(DeviceSpan<std::byte> workspace, const SelectSizes& sizes) {
  std::byte* at = workspace.data();
  SelectMemory memory{};
  memory.selected = reinterpret_cast<Selected*>(at);
  memory.bins = reinterpret_cast<std::uint32_t*>(at + SelectSizes::kHead);
  memory.tiles = reinterpret_cast<TileEntries*>(memory.bins + kSelectBins);
  memory.indices = reinterpret_cast<std::uint32_t*>(memory.tiles + sizes.tiles + 1);
  memory.gap_sums = memory.indices + sizes.entries;
  memory.sample = reinterpret_cast<float*>(memory.gap_sums + sizes.gap_sums());
  return memory;
}

// Fills selected and tiles. `k` is 1 to the vector's length, which is below 2^32. An empty plan: exactly k.
Status launch_select(DeviceSpan<const float> vector, std::uint64_t k, const SamplePlan& sample, const Tiling& tiling,
                     const SelectMemory& memory, Stream& stream);

}  // namespace fluvial::kernels::FLUVIAL_GPU
