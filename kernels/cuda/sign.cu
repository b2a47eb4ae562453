// sign: a bit a value with a scale a block, or votes.
#include "kernels/cuda/blocks.h"
#include "kernels/ops/sign.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr std::uint32_t kVoteBlock = 2048;  // votes have no blocks: a multiple of 8

struct Layout {
  Blocks blocks;
  std::uint64_t n;
  bool vote;

  __host__ __device__ std::uint64_t bits_begin() const { return kHeaderBytes + (vote ? 0 : 4 * blocks.count(n)); }
  __host__ __device__ std::uint64_t block_bytes() const { return (blocks.values + 7) / 8; }
  __host__ __device__ std::uint64_t bytes() const {
    return bits_begin() + n / blocks.values * block_bytes() + (n % blocks.values + 7) / 8;
  }
  __device__ std::uint64_t header() const { return block_header(vote ? 1 : 0, vote ? 0 : blocks.values); }
};

struct SignSource {
  const std::byte* bytes;
  Layout layout;

  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    const std::uint32_t block = layout.blocks.index_of(at.index);
    const std::uint32_t offset = static_cast<std::uint32_t>(at.index) - block * layout.blocks.values;
    const float scale = layout.vote ? 1.0F : ops::bits_float(scale_bits_at(bytes, block));
    const auto byte =
        static_cast<std::uint32_t>(bytes[layout.bits_begin() + block * layout.block_bytes() + offset / 8]);
    Pack<float, kCount> values;
    for (int i = 0; i < kCount; ++i) {
      values.v[i] = ops::sign_value((byte >> (offset % 8 + static_cast<std::uint32_t>(i))) & 1U, scale);
    }
    return values;
  }
  template <int kCount>
  __device__ bool fine(At<kCount>) const {
    return true;
  }
  __device__ std::uint64_t parts() const { return layout.blocks.count(layout.n); }
  __device__ bool well_formed(std::uint64_t block) const {
    if (!layout.vote && scale_bits_at(bytes, block) >= ops::kInfinityBits) return false;
    if (block == 0 && header_at(bytes) != layout.header()) return false;
    const std::uint64_t left = layout.n - block * layout.blocks.values;
    const auto length = static_cast<std::uint32_t>(left < layout.blocks.values ? left : layout.blocks.values);
    const std::uint64_t last = layout.bits_begin() + block * layout.block_bytes() + (length - 1) / 8;
    return static_cast<std::uint32_t>(bytes[last]) >> ((length - 1) % 8 + 1) == 0;
  }
};

struct SignCoder {
  float scale;
  __device__ std::int32_t code(float value, std::uint16_t) const {
    return scale == 0 ? 0 : static_cast<std::int32_t>(ops::sign_bit(value));
  }
  __device__ float value(std::int32_t code) const { return ops::sign_value(static_cast<std::uint32_t>(code), scale); }
};

struct SignFormat {
  Blocks blocks;
  bool vote;

  __host__ __device__ Layout layout(std::uint64_t n) const { return {blocks, n, vote}; }
  std::size_t bytes(std::size_t n) const { return layout(n).bytes(); }
  SignSource source(const std::byte* bytes, std::size_t n) const { return {bytes, layout(n)}; }
  bool by_four(const std::byte*, std::size_t) const { return blocks.values % 4 == 0; }
  Status encode(const EncodeJob& job, const StreamKey& key, Stream& stream) const {
    return launch_encode_blocks(*this, job, key, stream);
  }

  __device__ bool is_random() const { return false; }
  __device__ void put_header(std::byte* out, std::uint64_t) const { put_header_at(out, layout(0).header()); }
  __device__ bool has_sum() const { return !vote; }
  __device__ double term(float value) const { return static_cast<double>(value < 0 ? -value : value); }
  __device__ SignCoder coder(double sum, std::uint32_t length, std::uint32_t) const {
    return {vote ? 1.0F : ops::sign_scale(sum, length)};
  }
  __device__ void put_scale(std::byte* out, std::uint64_t block, const SignCoder& coder) const {
    if (!vote) put_scale_at(out, block, coder.scale);
  }
  // Eight lanes join their bits: 32 in a row of the first four values of each, and 32 of the second.
  __device__ void put_codes(std::byte* out, std::uint64_t n, std::uint64_t block, std::uint32_t offset,
                            std::uint32_t length, const Eight<std::int32_t>& codes) const {
    for (int half = 0; half < 2; ++half) {
      std::uint32_t word = 0;
      for (int i = 0; i < 4; ++i) word |= static_cast<std::uint32_t>(codes.v[4 * half + i]) << i;
      word <<= 4 * (lane_id() % 8);
      for (int step = 4; step > 0; step /= 2) word |= __shfl_xor_sync(kFullMask, word, step);
      // Lane j of the first four of the eight writes byte j.
      const std::uint32_t j = lane_id() % 8;
      const std::uint32_t at = offset + 64 * (lane_id() / 8) + 32 * static_cast<std::uint32_t>(half) + 8 * j;
      if (j < 4 && at < length) {
        out[layout(n).bits_begin() + block * layout(n).block_bytes() + at / 8] =
            static_cast<std::byte>(word >> (8 * j) & 0xffU);
      }
    }
  }
};

}  // namespace

MadeCodec make_sign_codec(const CodecSpec& spec) {
  const SignFormat format{Blocks::of(spec.vote ? kVoteBlock : spec.block_values), spec.vote};
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuDenseCodec<SignFormat>>(spec, format));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
