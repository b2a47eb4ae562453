// terngrad: five codes a byte.
#include "kernels/cuda/quantised.h"
#include "kernels/ops/terngrad.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

struct TernCoder {
  float scale;
  float chances;
  __device__ std::int32_t code(float value, std::uint16_t random) const {
    return scale == 0 ? 0 : ops::terngrad_code(value, chances, random);
  }
  __device__ float value(std::int32_t code) const { return ops::int8_value(static_cast<std::int8_t>(code), scale); }
};

struct TernFormat {
  static constexpr std::uint32_t kHeader = 8;
  static constexpr std::uint32_t kDigits = ops::kTernaryDigits;
  using Layout = BlockLayout<TernFormat>;
  Blocks blocks;
  double clip;

  std::size_t bytes(std::size_t n) const { return Layout{*this, n}.bytes(); }
  BlockSource<TernFormat> source(const std::byte* bytes, std::size_t n) const { return {bytes, {*this, n}}; }
  bool by_four(const std::byte*, std::size_t) const { return blocks.values % 4 == 0; }
  Status encode(const EncodeJob& job, const StreamKey& key, Stream& stream) const {
    return launch_encode_blocks(*this, job, key, stream);
  }

  // Byte j of w holds the values j, w + j, ... of the block.
  __host__ __device__ std::uint64_t block_bytes(std::uint32_t values) const { return (values + kDigits - 1) / kDigits; }
  template <int kCount>
  __device__ Pack<std::int32_t, kCount> codes_at(const std::byte* from, std::uint32_t values,
                                                 std::uint32_t index) const {
    const auto width = static_cast<std::uint32_t>(block_bytes(values));
    std::uint32_t byte = index;
    std::int32_t place = 0;
    FLUVIAL_UNROLL
    for (std::uint32_t i = 1; i < kDigits; ++i) {  // less than a division
      if (byte < width) continue;
      byte -= width;
      ++place;
    }
    Pack<std::int32_t, kCount> codes;
    for (int i = 0; i < kCount; ++i) {
      codes.v[i] = ops::ternary_digit(static_cast<std::int8_t>(from[byte]), ops::ternary_place(place));
      if (++byte < width) continue;
      byte = 0;
      ++place;
    }
    return codes;
  }
  __device__ static float value_of(std::int32_t code, float scale) {
    return ops::int8_value(static_cast<std::int8_t>(code), scale);
  }
  __device__ bool is_code(std::int32_t) const { return true; }  // ends_well() looks at the bytes
  __device__ bool has_header(const std::byte* bytes, std::uint64_t n) const {
    return header_at(bytes) == (block_header(0, blocks.values) | n << 32);
  }
  __device__ bool ends_well(const std::byte* from, std::uint32_t values) const {
    const auto width = static_cast<std::uint32_t>(block_bytes(values));
    for (std::uint32_t j = 0; j < width; ++j) {
      const auto packed = static_cast<std::int8_t>(from[j]);
      if (packed < -ops::kTernaryMost || packed > ops::kTernaryMost) return false;
    }
    for (std::uint32_t i = values; i < kDigits * width; ++i) {
      if (codes_at<1>(from, values, i).v[0] != 0) return false;
    }
    return true;
  }

  __device__ bool is_random() const { return true; }
  __device__ void put_header(std::byte* out, std::uint64_t n) const {
    put_header_at(out, block_header(0, blocks.values) | n << 32);
  }
  __device__ bool has_sum() const { return clip > 0; }
  __device__ double term(float value) const { return square(value); }
  __device__ TernCoder coder(double sum, std::uint32_t length, std::uint32_t max_bits) const {
    const float scale = ops::terngrad_scale(max_bits, sum, length, clip);
    return {scale, ops::kChances / scale};
  }
  __device__ void put_scale(std::byte* out, std::uint64_t block, const TernCoder& coder) const {
    put_scale_at(out, block, coder.scale);
  }
  // A byte takes codes from all over the block: they wait until the last step.
  __device__ void put_codes(std::byte* out, std::uint64_t n, std::uint64_t block, std::uint32_t offset,
                            std::uint32_t length, const Eight<std::int32_t>& codes) const {
    __shared__ std::int8_t staged[kBlockThreads / kWarp][kBlockMost];
    std::int8_t* const mine = staged[warp_id()];
    stage(mine + offset, codes);
    __syncwarp();
    if (offset + kStepValues < length) return;
    const auto width = static_cast<std::uint32_t>(block_bytes(length));
    std::byte* const to = out + Layout{*this, n}.codes_at(block);
    for (std::uint32_t j = lane_id(); j < width; j += kWarp) {
      std::int32_t packed = 0;
      for (std::uint32_t place = kDigits; place-- > 0;) {
        const std::uint32_t index = place * width + j;
        packed = 3 * packed + (index < length ? mine[index] : 0);
      }
      to[j] = static_cast<std::byte>(packed & 0xff);
    }
    __syncwarp();
  }
};

}  // namespace

MadeCodec make_terngrad_codec(const CodecSpec& spec) {
  return std::unique_ptr<DeviceCodec>(
      std::make_unique<GpuDenseCodec<TernFormat>>(spec, TernFormat{Blocks::of(spec.block_values), spec.clip}));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
