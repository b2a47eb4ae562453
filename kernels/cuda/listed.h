// Chunks that list their entries, the indices in a Golomb-Rice code: reading them. One block goes over a chunk, 32
// bits of the unary part a thread: an index is the number of zeros before its one, times 2^b, and the low parts and
// ones before it. Internal.
#pragma once

#include "kernels/cuda/entries.h"
#include "kernels/sparse_indices.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr std::uint32_t kListedHeaderBytes = 8;
inline constexpr std::uint64_t kListedVersion = 2;
inline constexpr unsigned kWalkThreads = 1024;

__device__ inline void put_listed_header(std::byte* out, std::uint32_t entries, unsigned bits) {
  const std::uint64_t header =
      kListedVersion | static_cast<std::uint64_t>(bits) << 8 | static_cast<std::uint64_t>(entries) << 32;
  store_pack(reinterpret_cast<std::uint64_t*>(out), Pack<std::uint64_t, 1>{{header}});
}

// A chunk's parts, as far as its bytes have them.
struct ListedChunk {
  const std::byte* bytes;
  std::uint64_t size;
  std::uint32_t n;
  std::uint32_t entries;
  unsigned bits;
  bool has_parts;  // the header is right and the values and low bits are all there
  const std::byte* low;
  std::uint64_t low_bytes;
  const std::byte* unary;
  std::uint64_t unary_bytes;

  __device__ ListedChunk(const std::byte* chunk, std::uint64_t chunk_size, std::uint32_t value_count)
      : bytes(chunk),
        size(chunk_size),
        n(value_count),
        entries(0),
        bits(0),
        has_parts(false),
        low(chunk),
        low_bytes(0),
        unary(chunk),
        unary_bytes(0) {
    if (size < kListedHeaderBytes) return;
    const std::uint64_t header = load_pack<Pack<std::uint64_t, 1>>(reinterpret_cast<const std::uint64_t*>(bytes)).v[0];
    entries = static_cast<std::uint32_t>(header >> 32);
    bits = static_cast<unsigned>(header >> 8 & 0xffU);
    const std::uint64_t low_begin = kListedHeaderBytes + 4 * static_cast<std::uint64_t>(entries);
    low_bytes = (static_cast<std::uint64_t>(entries) * bits + 7) / 8;
    if ((header & 0xffU) != kListedVersion || (header >> 16 & 0xffffU) != 0 || bits > kRiceBitsMax || entries > n ||
        size < low_begin + low_bytes) {
      entries = 0;
      return;
    }
    has_parts = true;
    low = bytes + low_begin;
    unary = low + low_bytes;
    unary_bytes = size - low_begin - low_bytes;
  }

  __device__ float value(std::uint32_t entry) const {
    return load_pack<Pack<float, 1>>(reinterpret_cast<const float*>(bytes + kListedHeaderBytes) + entry).v[0];
  }
  __device__ std::uint32_t low_of(std::uint32_t entry) const {
    const std::uint64_t at = static_cast<std::uint64_t>(entry) * bits;
    std::uint64_t word = 0;
    for (std::uint64_t byte = at / 8; byte < (at + bits + 7) / 8; ++byte) {
      word |= static_cast<std::uint64_t>(low[byte]) << (8 * (byte - at / 8));
    }
    return static_cast<std::uint32_t>(word >> (at % 8)) & ((1U << bits) - 1);
  }
  __device__ std::uint32_t unary_word(std::uint64_t index) const {
    std::uint32_t word = 0;
    for (std::uint64_t byte = 0; byte < 4 && 4 * index + byte < unary_bytes; ++byte) {
      word |= static_cast<std::uint32_t>(unary[4 * index + byte]) << (8 * byte);
    }
    return word;
  }
  // Everything but the indices themselves; `ones` were found.
  __device__ bool is_whole(std::uint32_t ones) const {
    if (!has_parts || ones != entries) return false;
    if (entries == 0) return unary_bytes == 0;
    const std::uint32_t used = static_cast<std::uint32_t>(static_cast<std::uint64_t>(entries) * bits % 8);
    if (used != 0 && static_cast<std::uint32_t>(low[low_bytes - 1]) >> used != 0) return false;
    return unary_bytes > 0 && unary[unary_bytes - 1] != std::byte{0};
  }
};

// Calls op.entry(index, value) for each; outcome->malformed, when there is an outcome, says that something is wrong.
template <typename Op>
__global__ void __launch_bounds__(kWalkThreads)
    walk_listed(const std::byte* bytes, std::uint64_t size, std::uint32_t n, Op op, ChunkOutcome* outcome) {
  __shared__ std::uint32_t shared[kWarp + 1];
  const ListedChunk chunk(bytes, size, n);
  std::uint32_t ones = 0;
  std::uint32_t low_sum = 0;
  bool fine = true;
  for (std::uint64_t first = 0; 4 * first < chunk.unary_bytes; first += kWalkThreads) {
    const std::uint64_t at = first + threadIdx.x;
    std::uint32_t word = chunk.unary_word(at);
    std::uint32_t total = 0;
    std::uint32_t entry = ones + block_sum_before(static_cast<std::uint32_t>(__popc(word)), shared, &total);
    __syncthreads();
    ones += total;
    std::uint32_t lows = 0;
    for (std::uint32_t i = 0; i < static_cast<std::uint32_t>(__popc(word)); ++i) {
      if (entry + i < chunk.entries) lows += chunk.low_of(entry + i);
    }
    std::uint32_t low = low_sum + block_sum_before(lows, shared, &total);
    __syncthreads();
    low_sum += total;
    for (; word != 0; word &= word - 1, ++entry) {
      if (entry >= chunk.entries) {
        fine = false;
        break;
      }
      low += chunk.low_of(entry);
      const std::uint64_t zeros = 32 * at + static_cast<std::uint64_t>(__ffs(static_cast<int>(word)) - 1) - entry;
      const std::uint64_t index = (zeros << chunk.bits) + low + entry;
      if (index < n) {
        op.entry(static_cast<std::uint32_t>(index), chunk.value(entry));
      } else {
        fine = false;  // the first such index is right: what wraps comes after it
      }
    }
  }
  if (threadIdx.x == 0) fine = fine && chunk.is_whole(ones);
  if (!fine && outcome != nullptr) outcome->malformed = 1;
}

// The form that EntryCodec requires.
struct ListedForm {
  static constexpr std::uint32_t kHeaderBytes = kListedHeaderBytes;
  template <typename Op>
  static Status walk(DeviceSpan<const std::byte> bytes, std::size_t n, const Op& op, ChunkOutcome* outcome,
                     Stream& stream) {
    return launch(walk_listed<Op>, 1U, kWalkThreads, stream, bytes.data(), bytes.size(), n, op, outcome);
  }
};

}  // namespace fluvial::kernels::FLUVIAL_GPU
