// Reads qsgd's Elias-gamma form. The chunk says how many bytes each block's codes take, so blocks of threads read tiles
// of values side by side, and each warp a block of codes.
//
// The beginning of a code is known only when all codes before it were read. Each lane of a warp takes 32 bits of a
// stream, and first supposes that a code begins with its first bit. The end of its last code tells the next lane where
// that really begins, and the next lane reads again, until no lane learns anything new. Such codes fall into step by
// themselves, mostly within a few; lane i is right after i times at most, whatever the bytes. Internal.
#pragma once

#include "kernels/cuda/qsgd.h"
#include "kernels/ops/elias.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr std::uint32_t kEliasHeader = QsgdFormat::kHeader;
inline constexpr std::uint32_t kLaneBits = 32;
inline constexpr std::uint32_t kTileBlocksMost = kTileValues / 128 + 2;  // blocks have 128 values at least

__device__ inline std::uint32_t elias_zeros(std::uint32_t bits) {
  return static_cast<std::uint32_t>(__ffs(static_cast<int>(bits | 1U << ops::kEliasZerosMost)) - 1);
}

// The codes of a tile's values, while it is open.
__device__ inline std::int8_t* tile_codes() {
  __shared__ std::int8_t codes[kTileValues];
  return codes;
}

// A block's codes in the chunk.
struct EliasStream {
  const std::byte* from;
  std::uint32_t size;

  // 64 bits from a byte on, zeros after the end.
  __device__ std::uint64_t window(std::uint32_t byte) const {
    std::uint64_t bits = 0;
    FLUVIAL_UNROLL
    for (std::uint32_t i = 0; i < 8; ++i) {
      if (byte + i < size) bits |= static_cast<std::uint64_t>(from[byte + i]) << (8 * i);
    }
    return bits;
  }
};

// Of a lane's 32 bits, from the first code that begins in them: how many begin there, and how many bits the last one
// takes of the next lane's.
struct LaneCodes {
  std::uint32_t count = 0;
  std::uint32_t beyond = 0;

  __device__ LaneCodes(std::uint64_t bits, std::uint32_t first) {
    std::uint32_t at = first;
    for (; at < kLaneBits; ++count) at += ops::elias_length(elias_zeros(static_cast<std::uint32_t>(bits >> at)));
    beyond = at - kLaneBits;
  }
  __device__ LaneCodes() {}
};

// A source for screen_tiles() and each_of_tiles(). `size`: the chunk's bytes, at least streams_begin().
struct EliasSource {
  const std::byte* bytes;
  std::uint64_t size;
  BlockLayout<QsgdFormat> layout;

  static __host__ __device__ std::uint64_t streams_begin(std::uint64_t blocks) { return kEliasHeader + 6 * blocks; }

  __device__ std::uint32_t stream_bytes(std::uint64_t block) const {
    const auto* const lengths = reinterpret_cast<const std::uint16_t*>(bytes + kEliasHeader + 4 * layout.count());
    return load_pack<Pack<std::uint16_t, 1>>(lengths + block).v[0];
  }

  // Makes the codes of a tile; whether this thread saw nothing wrong. All threads of the block call it.
  __device__ bool open(std::uint64_t tile) const {
    __shared__ std::uint32_t sums[kWarp + 1];
    __shared__ std::uint32_t starts[kTileBlocksMost];
    const std::uint64_t end = (tile + 1) * kTileValues < layout.n ? (tile + 1) * kTileValues : layout.n;
    const std::uint32_t first_block = layout.format.blocks.index_of(tile * kTileValues);
    const std::uint32_t blocks = layout.format.blocks.index_of(end - 1) + 1 - first_block;
    std::uint32_t before = 0;
    for (std::uint32_t block = threadIdx.x; block < first_block; block += kTileThreads) before += stream_bytes(block);
    std::uint32_t total = 0;  // of lengths that fit it is below 2^32; decode() refuses others
    block_sum_before(before, sums, &total);
    const auto begin = static_cast<std::uint32_t>(streams_begin(layout.count())) + total;
    __syncthreads();
    const std::uint32_t own = threadIdx.x < blocks ? stream_bytes(first_block + threadIdx.x) : 0;
    const std::uint32_t start = begin + block_sum_before(own, sums, &total);
    if (threadIdx.x < blocks) starts[threadIdx.x] = start;
    __syncthreads();
    bool fine = true;
    for (std::uint32_t i = warp_id(); i < blocks; i += kTileThreads / kWarp) {
      fine = decode(first_block + i, starts[i], tile) && fine;
    }
    __syncthreads();
    return fine;
  }

  __device__ std::uint64_t parts() const { return layout.count(); }
  __device__ bool well_formed(std::uint64_t block) const {
    if (packed().scale_bits(block) >= ops::kInfinityBits) return false;
    return block != 0 || layout.format.has_header(bytes, layout.n, QsgdFormat::kElias);
  }
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    const float step = ops::bits_float(packed().scale_bits(layout.format.blocks.index_of(at.index)));
    const std::int8_t* const codes = tile_codes() + at.index % kTileValues;
    Pack<float, kCount> values;
    for (int i = 0; i < kCount; ++i) values.v[i] = ops::int8_value(codes[i], step);
    return values;
  }
  template <int kCount>
  __device__ bool fine(At<kCount>) const {
    return true;  // open() has looked
  }

 private:
  // Steps lie where those of the packed form do.
  __device__ BlockSource<QsgdFormat> packed() const { return {bytes, layout}; }

  // A warp's work. No more than the block's values are read, whatever the bytes say.
  __device__ bool decode(std::uint32_t block, std::uint32_t start, std::uint64_t tile) const {
    const std::uint32_t values = layout.length(block);
    const std::uint64_t first_value = static_cast<std::uint64_t>(block) * layout.format.blocks.values;
    const auto put = [&](std::uint32_t index, std::int32_t code) {
      const std::uint64_t at = first_value + index - tile * kTileValues;
      if (at < kTileValues) tile_codes()[at] = static_cast<std::int8_t>(code);
    };
    std::uint32_t length = stream_bytes(block);
    bool fine = start <= size && length <= size - start;
    if (!fine) length = 0;
    if (block + 1 == layout.count() && start + length != size) fine = false;
    const EliasStream stream{bytes + start, length};
    std::uint32_t known = 0;   // codes before this lane's bits, and below those of all lanes
    std::uint32_t beyond = 0;  // the bits of lane 0 that belong to the code before
    for (std::uint32_t first = 0; known < values && first < length; first += kLaneBits / 8 * kWarp) {
      const std::uint32_t byte = first + kLaneBits / 8 * lane_id();
      const std::uint64_t bits = stream.window(byte);
      std::uint32_t begin = lane_id() == 0 ? beyond : 0;
      LaneCodes codes;
      for (;;) {
        codes = byte < length ? LaneCodes(bits, begin) : LaneCodes();
        const std::uint32_t learnt = __shfl_up_sync(kFullMask, codes.beyond, 1);
        const bool is_new = lane_id() != 0 && learnt != begin;
        if (is_new) begin = learnt;
        if (!__any_sync(kFullMask, is_new)) break;
      }
      const std::uint32_t index = known + warp_sum_before(codes.count);
      fine = put_codes(stream, byte, bits, begin, index, values, put) && fine;
      known = __shfl_sync(kFullMask, index + codes.count, kWarp - 1);
      beyond = __shfl_sync(kFullMask, codes.beyond, kWarp - 1);
    }
    for (std::uint32_t index = known + lane_id(); index < values; index += kWarp) put(index, 0);
    return fine && known >= values;
  }

  // The codes that begin in a lane's bits, from `begin` on; whether they may stand there.
  template <typename Put>
  __device__ bool put_codes(const EliasStream& stream, std::uint32_t byte, std::uint64_t bits, std::uint32_t begin,
                            std::uint32_t index, std::uint32_t values, Put put) const {
    bool fine = true;
    const std::uint64_t end = 8 * static_cast<std::uint64_t>(stream.size);
    for (std::uint32_t at = begin; at < kLaneBits && byte < stream.size && index < values; ++index) {
      const auto here = static_cast<std::uint32_t>(bits >> at);
      const std::uint32_t zeros = elias_zeros(here);
      const std::int32_t code = ops::elias_code(here, zeros);
      at += ops::elias_length(zeros);
      const std::uint64_t used = 8 * static_cast<std::uint64_t>(byte) + at;
      fine = fine && (here & 0xffU) != 0 && layout.format.is_code(code) && used <= end;
      if (index + 1 == values) fine = fine && end - used < 8 && bits >> at == 0;
      put(index, code);
    }
    return fine;
  }
};

// Calls op.run() for all of n elements, a tile of its source's at a time.
template <typename Op>
__global__ void __launch_bounds__(kTileThreads) each_of_tiles(Op op, std::uint64_t n, bool by_four) {
  for (std::uint64_t tile = blockIdx.x; tile * kTileValues < n; tile += gridDim.x) {
    (void)op.source.open(tile);
    for (unsigned j = 0; j < 4; ++j) {
      const std::uint64_t first = tile * kTileValues + 4 * threadIdx.x + 4 * kTileThreads * j;
      if (by_four && first + 4 <= n) {
        op.run(At<4>{first});
        continue;
      }
      for (std::uint64_t i = first; i < first + 4 && i < n; ++i) op.run(At<1>{i});
    }
  }
}

template <typename Op>
Status launch_each_of_tiles(const Op& op, std::uint64_t n, bool by_four, Stream& stream) {
  return launch(each_of_tiles<Op>, blocks_for((n + kTileValues - 1) / kTileValues, stream), kTileThreads, stream, op, n,
                by_four);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
