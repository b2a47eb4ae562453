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

// Values from `first` on, of which `length` are the block's: the others are 0.
__device__ inline Eight<float> load_step(const float* x, std::uint32_t length, bool by_four) {
  Eight<float> values;
  FLUVIAL_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t at = offset_of(4 * half);
    if (by_four && at + 4 <= length) {
      const auto pack = load_pack<Pack<float, 4>>(x + at);
      for (int i = 0; i < 4; ++i) values.v[4 * half + i] = pack.v[i];
    } else {
      for (std::uint32_t i = 0; i < 4; ++i) values.v[4 * half + static_cast<int>(i)] = at + i < length ? x[at + i] : 0;
    }
  }
  return values;
}

__device__ inline void store_step(float* out, const Eight<float>& values, std::uint32_t length, bool by_four) {
  FLUVIAL_UNROLL
  for (int half = 0; half < 2; ++half) {
    const std::uint32_t at = offset_of(4 * half);
    if (by_four && at + 4 <= length) {
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

// The 16 bits of each of the eight; `coordinate` is the step's first.
__device__ inline Eight<std::uint16_t> random_step(const ops::RandomStream& stream, std::uint64_t coordinate) {
  Eight<std::uint16_t> random;
  if (coordinate % ops::kRandomGroup == 0) {
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

// Lane i of 16 adds term(x) of the values at i, i + 16, ... of the block in order; then lanes i and i + 8, i + 4, i +
// 2, i + 1 are added. Every lane has the sum.
template <typename Term>
__device__ double lane_sum(const float* x, std::uint32_t length, Term term) {
  constexpr unsigned kLanes = 16;
  double sum = 0;
  if (lane_id() < kLanes) {
    for (std::uint32_t i = lane_id(); i < length; i += kLanes) sum += term(x[i]);
  }
  for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
  return __shfl_sync(kFullMask, sum, 0);
}

__device__ inline void report_block(const EncodeJob& job, std::uint64_t first, std::uint32_t length) {
  for (std::uint32_t i = lane_id(); i < length; i += kWarp) {
    if (ops::magnitude_bits(job.x[first + i]) >= ops::kInfinityBits) report_not_finite(job, first + i);
  }
}

// Format has: Blocks blocks; put_header(out, n); a Coder of a block from coder(x, length, max_bits), with code(value,
// random) and value(code), put_scale(out, block, coder), put_codes(out, n, block, offset, length, codes) for a step,
// called by all lanes, and is_random().
template <typename Format>
__global__ void __launch_bounds__(kBlockThreads)
    encode_blocks(Format format, EncodeJob job, ops::RandomStream stream, bool by_four) {
  if (thread_in_grid() == 0) format.put_header(job.out, job.n);
  const std::uint64_t blocks = format.blocks.count(job.n);
  for (std::uint64_t block = thread_in_grid() / kWarp; block < blocks; block += threads_in_grid() / kWarp) {
    const std::uint64_t first = block * format.blocks.values;
    const std::uint64_t left = job.n - first;
    const std::uint32_t length = left < format.blocks.values ? static_cast<std::uint32_t>(left) : format.blocks.values;
    const float* const x = job.x + first;
    Eight<float> values = load_step(x, length, by_four);
    std::uint32_t most = max_bits_of(values, 0);
    for (std::uint32_t offset = kStepValues; offset < length; offset += kStepValues) {
      most = max_bits_of(load_step(x + offset, length - offset, by_four), most);
    }
    most = warp_max(most);
    if (most >= ops::kInfinityBits) {  // the same for all lanes
      report_block(job, first, length);
      continue;
    }
    const auto coder = format.coder(x, length, most);
    if (lane_id() == 0) format.put_scale(job.out, block, coder);
    for (std::uint32_t offset = 0; offset < length; offset += kStepValues) {
      if (offset > 0) values = load_step(x + offset, length - offset, by_four);
      Eight<std::uint16_t> random{};
      if (format.is_random()) random = random_step(stream, job.first_value + first + offset);
      Eight<std::int32_t> codes;
      FLUVIAL_UNROLL
      for (int i = 0; i < 8; ++i) {
        codes.v[i] = offset + offset_of(i) < length ? coder.code(values.v[i], random.v[i]) : 0;
      }
      format.put_codes(job.out, job.n, block, offset, length, codes);
      if (job.residual == nullptr) continue;
      FLUVIAL_UNROLL
      for (int i = 0; i < 8; ++i) values.v[i] -= coder.value(codes.v[i]);
      store_step(job.residual + first + offset, values, length - offset, by_four);
    }
  }
}

template <typename Format>
Status launch_encode_blocks(const Format& format, const EncodeJob& job, const StreamKey& key, Stream& stream) {
  constexpr std::uint64_t kWarps = kBlockThreads / kWarp;
  const bool by_four = format.blocks.values % 4 == 0 && fits_four(job.x) && fits_four(job.residual);
  const std::uint64_t blocks = format.blocks.count(job.n);
  return launch(encode_blocks<Format>, blocks_for((blocks + kWarps - 1) / kWarps, stream), kBlockThreads, stream,
                format, job, ops::random_stream(key.run, key.round, key.site), by_four);
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
