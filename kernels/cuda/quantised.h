// Codecs whose codes are packed across values, so that a warp puts them into shared memory first: qsgd, terngrad.
// Internal.
#pragma once

#include "kernels/cuda/blocks.h"
#include "kernels/ops/int8.h"

namespace fluvial::kernels::FLUVIAL_GPU {

inline constexpr std::uint32_t kBlockMost = 2048;

__device__ inline double square(float value) { return static_cast<double>(value) * static_cast<double>(value); }

__device__ inline void stage(std::int8_t* staged, const Eight<std::int32_t>& codes) {
  FLUVIAL_UNROLL
  for (int i = 0; i < 8; ++i) staged[offset_of(i)] = static_cast<std::int8_t>(codes.v[i]);
}

// Where the codes of a chunk's blocks are: scales first, then as many bytes a block as block_bytes() says.
template <typename Format>
struct BlockLayout {
  Format format;
  std::uint64_t n;

  __host__ __device__ std::uint64_t count() const { return format.blocks.count(n); }
  __host__ __device__ std::uint32_t length(std::uint64_t block) const {
    const std::uint64_t left = n - block * format.blocks.values;
    return left < format.blocks.values ? static_cast<std::uint32_t>(left) : format.blocks.values;
  }
  __host__ __device__ std::uint64_t codes_at(std::uint64_t block) const {
    return Format::kHeader + 4 * count() + block * format.block_bytes(format.blocks.values);
  }
  __host__ __device__ std::uint64_t bytes() const {
    return n == 0 ? Format::kHeader : codes_at(count() - 1) + format.block_bytes(length(count() - 1));
  }
};

// Format::codes_at(bytes of a block, values of the block, index in it) reads codes in a row.
template <typename Format>
struct BlockSource {
  const std::byte* bytes;
  BlockLayout<Format> layout;

  // scale_bits_at() counts from the end of a header of eight bytes.
  __device__ std::uint32_t scale_bits(std::uint64_t block) const {
    return scale_bits_at(bytes + Format::kHeader - kHeaderBytes, block);
  }
  template <int kCount>
  __device__ Pack<std::int32_t, kCount> codes(At<kCount> at, std::uint32_t block) const {
    const auto offset = static_cast<std::uint32_t>(at.index) - block * layout.format.blocks.values;
    return layout.format.template codes_at<kCount>(bytes + layout.codes_at(block), layout.length(block), offset);
  }
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    const std::uint32_t block = layout.format.blocks.index_of(at.index);
    const Pack<std::int32_t, kCount> from = codes(at, block);
    const float scale = ops::bits_float(scale_bits(block));
    Pack<float, kCount> values;
    for (int i = 0; i < kCount; ++i) values.v[i] = Format::value_of(from.v[i], scale);
    return values;
  }
  template <int kCount>
  __device__ bool fine(At<kCount> at) const {
    const Pack<std::int32_t, kCount> from = codes(at, layout.format.blocks.index_of(at.index));
    bool all = true;
    for (int i = 0; i < kCount; ++i) all = all && layout.format.is_code(from.v[i]);
    return all;
  }
  __device__ std::uint64_t parts() const { return layout.count(); }
  __device__ bool well_formed(std::uint64_t block) const {
    if (scale_bits(block) >= ops::kInfinityBits) return false;  // negative or not finite
    if (block == 0 && !layout.format.has_header(bytes, layout.n)) return false;
    return layout.format.ends_well(bytes + layout.codes_at(block), layout.length(block));
  }
};

}  // namespace fluvial::kernels::FLUVIAL_GPU
