// Codecs whose values share a scale a block: a warp encodes a block. Internal.
//
// A warp takes its block in steps of 256 values. Lane l holds, of a step, the four values from 64 (l / 8) + 4 (l % 8)
// on, and the four that are 32 further on: whole cache lines for the loads, and one counter of the random numbers
// (ops/philox.h) for all eight when the block begins at a group of 64 coordinates.
#pragma once

#include "kernels/cuda/dense.h"
#include "kernels/ops/philox.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr unsigned kBlockThreads = 256;
inline constexpr std::uint32_t kStepValues = 256;
inline constexpr std::uint32_t kHeaderBytes = 8;

// Which block a value is in, by a multiplication in place of a division: with e = multiplier * values - 2^shift, which
// is below `values`, index * multiplier / 2^shift is index / values and index * e / 2^shift / values. The latter takes
// nothing to the next whole number while index * e is below 2^shift. So this holds for index < 2^30; chunks are
// shorter.
struct Blocks {
  std::uint32_t values = 1;
  std::uint32_t multiplier = 1;
  std::uint32_t shift = 0;

  static Blocks of(std::uint32_t block_values) {
    std::uint32_t shift = 31;
    for (std::uint32_t half = block_values / 2; half != 0; half /= 2) ++shift;
    const std::uint64_t multiplier = ((std::uint64_t{1} << shift) + block_values - 1) / block_values;
    return {.values = block_values, .multiplier = static_cast<std::uint32_t>(multiplier), .shift = shift};
  }
  __host__ __device__ std::uint32_t index_of(std::uint64_t value) const {
    const auto index = static_cast<std::uint32_t>(value);
    return static_cast<std::uint32_t>(static_cast<std::uint64_t>(index) * multiplier >> shift);
  }
  __host__ __device__ std::uint64_t count(std::uint64_t n) const {
    return index_of(n) + (n > static_cast<std::uint64_t>(index_of(n)) * values ? 1U : 0U);
  }
};
static_assert(kChunkValuesMax < std::uint64_t{1} << 30);

// The eight values of a lane in a step, or their codes.
template <typename T>
struct Eight {
  T v[8];
};

__device__ inline std::uint32_t lane_offset() { return 64 * (lane_id() / 8) + 4 * (lane_id() % 8); }
// Of value i of the eight, from the step's beginning.
__device__ inline std::uint32_t offset_of(int i) {
  return lane_offset() + static_cast<std::uint32_t>(i % 4 + (i < 4 ? 0 : 32));
}

// Values from `x` on, of which `length` are the block's: the others are 0. A whole step needs no look at either.
template <bool kWhole = false>
__device__ inline Eight<float> load_step(const float* x, std::uint32_t length, bool by_four) {
  Eight<float> values;
  FLUVIAL_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t at = offset_of(4 * half);
    if (kWhole || (by_four && at + 4 <= length)) {
      const auto pack = load_pack<Pack<float, 4>>(x + at);
      for (int i = 0; i < 4; ++i) values.v[4 * half + i] = pack.v[i];
    } else {
      for (std::uint32_t i = 0; i < 4; ++i) values.v[4 * half + static_cast<int>(i)] = at + i < length ? x[at + i] : 0;
    }
  }
  return values;
}

template <bool kWhole = false>
__device__ inline void store_step(float* out, const Eight<float>& values, std::uint32_t length, bool by_four) {
  FLUVIAL_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t at = offset_of(4 * half);
    if (kWhole || (by_four && at + 4 <= length)) {
      Pack<float, 4> pack;
      for (int i = 0; i < 4; ++i) pack.v[i] = values.v[4 * half + i];
      store_pack(out + at, pack);
    } else {
      for (std::uint32_t i = 0; i < 4; ++i) {
        if (at + i < length) out[at + i] = values.v[4 * half + static_cast<int>(i)];
      }
    }
  }
}

__device__ inline std::uint32_t max_bits_of(const Eight<float>& values, std::uint32_t most) {
  for (const float value : values.v) {
    const std::uint32_t bits = ops::magnitude_bits(value);
    most = bits > most ? bits : most;
  }
  return most;
}

// The 16 bits of each of the eight; `coordinate` is the step's first, that of a group of 64 in a whole step.
template <bool kWhole>
__device__ inline Eight<std::uint16_t> random_step(const ops::RandomStream& stream, std::uint64_t coordinate) {
  Eight<std::uint16_t> random;
  if (kWhole || coordinate % ops::kRandomGroup == 0) {
    const std::uint64_t counter = ops::kRandomLanes * (coordinate / ops::kRandomGroup) + lane_id();
    const ops::RandomPairs pairs = ops::philox_pairs(counter, stream.counter_high, stream.key);
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) random.v[i] = static_cast<std::uint16_t>(pairs.pair[i / 4] >> (16 * (i % 4)));
  } else {
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) random.v[i] = ops::random_bits(stream, coordinate + offset_of(i));
  }
  return random;
}

// The lanes of two blocks side by side. Lane i of 16 adds term(x) of the values at i, i + 16, ... of its block in
// order; then lanes i and i + 8, i + 4, i + 2, i + 1 are added. All 16 have the sum.
template <typename Format>
__device__ double lane_sums(const Format& format, const float* x, std::uint32_t length) {
  constexpr std::uint32_t kLanes = 16;
  constexpr std::uint32_t kAhead = 8;  // loads under way
  double sum = 0;
  std::uint32_t i = lane_id() % kLanes;
  for (; i + (kAhead - 1) * kLanes < length; i += kAhead * kLanes) {
    const float* const from = x + i;
    float ahead[kAhead];
    FLUVIAL_UNROLL
    for (std::uint32_t j = 0; j < kAhead; ++j) ahead[j] = from[j * kLanes];
    FLUVIAL_UNROLL
    for (std::uint32_t j = 0; j < kAhead; ++j) sum += format.term(ahead[j]);
  }
  for (; i < length; i += kLanes) sum += format.term(x[i]);
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
  return sum;
}

__device__ inline void report_block(const EncodeJob& job, std::uint64_t first, std::uint32_t length) {
  for (std::uint32_t i = lane_id(); i < length; i += kWarp) {
    if (ops::magnitude_bits(job.x[first + i]) >= ops::kInfinityBits) report_not_finite(job, first + i);
  }
}

// Blocks of a chunk, from `first` to `end`.
struct BlockRange {
  std::uint64_t first;
  std::uint64_t end;
};

// Of whole blocks the values come by fours, in whole steps, and from a group of random numbers on.
template <bool kWhole, typename Format>
__device__ void encode_block(const Format& format, const EncodeJob& job, const ops::RandomStream& stream, bool by_four,
                             std::uint64_t block, std::uint32_t length, double sum) {
  const std::uint64_t first = block * format.blocks.values;
  const float* const x = job.x + first;
  Eight<float> values = load_step<kWhole>(x, length, by_four);
  std::uint32_t most = max_bits_of(values, 0);
  for (std::uint32_t offset = kStepValues; offset < length; offset += kStepValues) {
    most = max_bits_of(load_step<kWhole>(x + offset, length - offset, by_four), most);
  }
  most = warp_max(most);
  if (most >= ops::kInfinityBits) {  // the same for all lanes
    report_block(job, first, length);
    return;
  }
  const auto coder = format.coder(sum, length, most);
  if (lane_id() == 0) format.put_scale(job.out, block, coder);
  for (std::uint32_t offset = 0; offset < length; offset += kStepValues) {
    if (offset > 0) values = load_step<kWhole>(x + offset, length - offset, by_four);
    Eight<std::uint16_t> random{};
    if (format.is_random()) random = random_step<kWhole>(stream, job.first_value + first + offset);
    Eight<std::int32_t> codes;
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) {
      codes.v[i] = kWhole || offset + offset_of(i) < length ? coder.code(values.v[i], random.v[i]) : 0;
    }
    format.put_codes(job.out, job.n, block, offset, length, codes);
    if (job.residual == nullptr) continue;
    FLUVIAL_UNROLL
    for (int i = 0; i < 8; ++i) values.v[i] -= coder.value(codes.v[i]);
    store_step<kWhole>(job.residual + first + offset, values, length - offset, by_four);
  }
}

// Format has: Blocks blocks; put_header(out, n); whether it has_sum() of term(value) over a block; a Coder of a block
// from coder(sum, length, max_bits), with code(value, random) and value(code), put_scale(out, block, coder),
// put_codes(out, n, block, offset, length, codes) for a step, called by all lanes, and is_random().
//
// A warp takes two blocks at a time: the sums of both are added side by side.
template <bool kWhole, typename Format>
__global__ void __launch_bounds__(kBlockThreads)
    encode_blocks(Format format, EncodeJob job, ops::RandomStream stream, bool by_four, BlockRange range) {
  if (thread_in_grid() == 0) format.put_header(job.out, job.n);
  const auto length_of = [&](std::uint64_t block) {
    const std::uint64_t left = job.n - block * format.blocks.values;
    return kWhole || left >= format.blocks.values ? format.blocks.values : static_cast<std::uint32_t>(left);
  };
  for (std::uint64_t two = range.first + 2 * (thread_in_grid() / kWarp); two < range.end;
       two += 2 * (threads_in_grid() / kWarp)) {
    double sums = 0;
    if (format.has_sum()) {
      const std::uint64_t mine = two + lane_id() / 16;
      const bool is_there = mine < range.end;
      sums = lane_sums(format, job.x + mine * format.blocks.values, is_there ? length_of(mine) : 0);
    }
    for (unsigned i = 0; i < 2 && two + i < range.end; ++i) {
      const double sum = __shfl_sync(kFullMask, sums, static_cast<int>(16 * i));
      encode_block<kWhole>(format, job, stream, by_four, two + i, length_of(two + i), sum);
    }
  }
}

template <bool kWhole, typename Format>
Status launch_encode_range(const Format& format, const EncodeJob& job, const ops::RandomStream& random, bool by_four,
                           const BlockRange& range, Stream& stream) {
  constexpr std::uint64_t kBlocks = 2 * kBlockThreads / kWarp;
  return launch(encode_blocks<kWhole, Format>, blocks_for((range.end - range.first + kBlocks - 1) / kBlocks, stream),
                kBlockThreads, stream, format, job, random, by_four, range);
}

template <typename Format>
Status launch_encode_blocks(const Format& format, const EncodeJob& job, const StreamKey& key, Stream& stream) {
  const bool by_four = format.blocks.values % 4 == 0 && fits_four(job.x) && fits_four(job.residual);
  const bool in_steps = by_four && format.blocks.values % kStepValues == 0 && job.first_value % ops::kRandomGroup == 0;
  const ops::RandomStream random = ops::random_stream(key.run, key.round, key.site);
  const std::uint64_t blocks = format.blocks.count(job.n);
  const std::uint64_t whole = in_steps ? job.n / format.blocks.values : 0;
  if (whole > 0) FLUVIAL_TRY(launch_encode_range<true>(format, job, random, by_four, BlockRange{0, whole}, stream));
  if (whole > 0 && whole == blocks) return {};
  return launch_encode_range<false>(format, job, random, by_four, BlockRange{whole, blocks}, stream);
}

__device__ inline std::uint32_t scale_bits_at(const std::byte* bytes, std::uint64_t block) {
  return load_pack<Pack<std::uint32_t, 1>>(reinterpret_cast<const std::uint32_t*>(bytes + kHeaderBytes) + block).v[0];
}
// Version 1, a mode, the values of a block, zeros.
__device__ inline std::uint64_t block_header(std::uint32_t mode, std::uint32_t block_values) {
  return 1U | mode << 8 | static_cast<std::uint64_t>(block_values) << 16;
}
__device__ inline std::uint64_t header_at(const std::byte* bytes) {
  return load_pack<Pack<std::uint64_t, 1>>(reinterpret_cast<const std::uint64_t*>(bytes)).v[0];
}
__device__ inline void put_header_at(std::byte* bytes, std::uint64_t header) {
  store_pack(reinterpret_cast<std::uint64_t*>(bytes), Pack<std::uint64_t, 1>{{header}});
}
__device__ inline void put_scale_at(std::byte* bytes, std::uint64_t block, float scale) {
  store_pack(reinterpret_cast<float*>(bytes + kHeaderBytes) + block, Pack<float, 1>{{scale}});
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
