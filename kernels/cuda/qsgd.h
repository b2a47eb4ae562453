// qsgd's packed form. Internal.
#pragma once

#include "kernels/cuda/quantised.h"
#include "kernels/ops/qsgd.h"

namespace fluvial::kernels::FLUVIAL_GPU {

struct QsgdCoder {
  float step;
  float fine_inverse;
  std::int32_t levels;
  __device__ std::int32_t code(float value, std::uint16_t random) const {
    return step == 0 ? 0 : ops::qsgd_code(value, fine_inverse, levels, random);
  }
  __device__ float value(std::int32_t code) const { return ops::int8_value(static_cast<std::int8_t>(code), step); }
};

struct QsgdFormat {
  static constexpr std::uint32_t kHeader = 12;
  static constexpr std::uint32_t kPacked = 0;  // forms
  static constexpr std::uint32_t kElias = 1;
  using Layout = BlockLayout<QsgdFormat>;
  Blocks blocks;
  std::int32_t levels;
  std::uint32_t width;  // bits a code

  std::size_t bytes(std::size_t n) const { return Layout{*this, n}.bytes(); }
  BlockSource<QsgdFormat> source(const std::byte* bytes, std::size_t n) const { return {bytes, {*this, n}}; }
  bool by_four(const std::byte*, std::size_t) const { return blocks.values % 4 == 0; }
  Status encode(const EncodeJob& job, const StreamKey& key, Stream& stream) const {
    return launch_encode_blocks(*this, job, key, stream);
  }

  __host__ __device__ std::uint64_t block_bytes(std::uint32_t values) const {
    return (static_cast<std::uint64_t>(values) * width + 7) / 8;
  }
  // Codes of a byte, where blocks that are read by fours begin at a multiple of 4.
  template <int kCount>
  __device__ Pack<std::int32_t, kCount> codes_at(const std::byte* from, std::uint32_t values,
                                                 std::uint32_t index) const {
    Pack<std::int32_t, kCount> codes;
    if (width == 8) {
      const auto bytes = load_pack<Pack<std::int8_t, kCount>>(reinterpret_cast<const std::int8_t*>(from) + index);
      for (int i = 0; i < kCount; ++i) codes.v[i] = bytes.v[i];
    } else {
      for (int i = 0; i < kCount; ++i) codes.v[i] = code_at(from, values, index + static_cast<std::uint32_t>(i));
    }
    return codes;
  }
  // A code has at most eight bits, so it is in two bytes.
  __device__ std::int32_t code_at(const std::byte* from, std::uint32_t values, std::uint32_t index) const {
    const std::uint32_t at = index * width;
    std::uint32_t bits = static_cast<std::uint32_t>(from[at / 8]);
    if (at / 8 + 1 < block_bytes(values)) bits |= static_cast<std::uint32_t>(from[at / 8 + 1]) << 8;
    return static_cast<std::int32_t>(bits >> (at % 8) << (32 - width)) >> (32 - width);
  }
  __device__ static float value_of(std::int32_t code, float step) {
    return ops::int8_value(static_cast<std::int8_t>(code), step);
  }
  __device__ bool is_code(std::int32_t code) const { return code >= -levels && code <= levels; }
  __device__ bool has_header(const std::byte* bytes, std::uint64_t n, std::uint32_t form = kPacked) const {
    return header_at(bytes) == (block_header(form, blocks.values) | n << 32) &&
           scale_bits_at(bytes, 0) == static_cast<std::uint32_t>(levels);
  }
  __device__ bool ends_well(const std::byte* from, std::uint32_t values) const {
    const std::uint32_t used = values * width % 8;
    return used == 0 || static_cast<std::uint32_t>(from[block_bytes(values) - 1]) >> used == 0;
  }

  __device__ bool is_random() const { return true; }
  __device__ void put_header(std::byte* out, std::uint64_t n, std::uint32_t form = kPacked) const {
    put_header_at(out, block_header(form, blocks.values) | n << 32);
    put_scale_at(out, 0, ops::bits_float(static_cast<std::uint32_t>(levels)));
  }
  __device__ bool has_sum() const { return true; }
  __device__ double term(float value) const { return square(value); }
  __device__ QsgdCoder coder(double sum, std::uint32_t, std::uint32_t) const {
    const float step = ops::qsgd_step(sum, levels);
    return {step, ops::kFineUnits / step, levels};
  }
  __device__ void put_scale(std::byte* out, std::uint64_t block, const QsgdCoder& coder) const {
    put_scale_at(out + kHeader - kHeaderBytes, block, coder.step);
  }
  // A step's codes begin at a byte: 256 of them take 32 bytes a bit.
  __device__ void put_codes(std::byte* out, std::uint64_t n, std::uint64_t block, std::uint32_t offset,
                            std::uint32_t length, const Eight<std::int32_t>& codes) const {
    std::byte* const to = out + Layout{*this, n}.codes_at(block) + offset / 8 * width;
    if (width == 8) {
      put_bytes(reinterpret_cast<std::int8_t*>(to), length - offset, codes);
    } else {
      pack_codes(to, length - offset < kStepValues ? length - offset : kStepValues, codes);
    }
  }

 private:
  __device__ void put_bytes(std::int8_t* to, std::uint32_t left, const Eight<std::int32_t>& codes) const {
    FLUVIAL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t at = offset_of(4 * half);
      Pack<std::int8_t, 4> four;
      for (int i = 0; i < 4; ++i) four.v[i] = static_cast<std::int8_t>(codes.v[4 * half + i]);
      if (at + 4 <= left && blocks.values % 4 == 0) {
        store_pack(to + at, four);
        continue;
      }
      FLUVIAL_UNROLL
      for (std::uint32_t i = 0; i < 4; ++i) {
        if (at + i < left) to[at + i] = four.v[i];
      }
    }
  }
  // A warp's work.
  __device__ void pack_codes(std::byte* to, std::uint32_t here, const Eight<std::int32_t>& codes) const {
    __shared__ std::int8_t staged[kBlockThreads / kWarp][kStepValues];
    std::int8_t* const mine = staged[warp_id()];
    stage(mine, codes);
    __syncwarp();
    const std::uint32_t mask = (1U << width) - 1;
    for (std::uint32_t byte = lane_id(); byte < block_bytes(here); byte += kWarp) {
      std::uint32_t bits = 0;
      for (std::uint32_t i = 8 * byte / width; i < here && i * width < 8 * byte + 8; ++i) {
        const std::uint32_t code = static_cast<std::uint32_t>(mine[i]) & mask;
        bits |= i * width >= 8 * byte ? code << (i * width - 8 * byte) : code >> (8 * byte - i * width);
      }
      to[byte] = static_cast<std::byte>(bits & 0xffU);
    }
    __syncwarp();
  }
};

}  // namespace fluvial::kernels::FLUVIAL_GPU
