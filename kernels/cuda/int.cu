// int8 and int4 with a scale a block.
#include "kernels/cuda/blocks.h"
#include "kernels/ops/int8.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

// kPerByte codes a byte: 1 or 2.
template <int kPerByte>
struct Layout {
  Blocks blocks;
  std::uint64_t n;
  __host__ __device__ std::uint64_t codes_begin() const { return kHeaderBytes + 4 * blocks.count(n); }
  __host__ __device__ std::uint64_t bytes() const { return codes_begin() + (n + kPerByte - 1) / kPerByte; }
};

template <int kPerByte>
struct IntSource {
  const std::byte* bytes;
  Layout<kPerByte> layout;

  template <int kCount>
  __device__ Pack<std::int8_t, kCount> codes(At<kCount> at) const {
    const std::byte* const from = bytes + layout.codes_begin();
    if constexpr (kPerByte == 1) {
      return at.load(reinterpret_cast<const std::int8_t*>(from));
    } else {
      Pack<std::int8_t, kCount> codes;
      std::uint32_t bits;
      if constexpr (kCount == 4) {
        bits = load_pack<Pack<std::uint16_t, 1>>(reinterpret_cast<const std::uint16_t*>(from + at.index / 2)).v[0];
      } else {
        bits = static_cast<std::uint32_t>(from[at.index / 2]) >> (4 * (at.index % 2));
      }
      for (int i = 0; i < kCount; ++i) {
        codes.v[i] = static_cast<std::int8_t>(static_cast<std::int32_t>(bits << (28 - 4 * i)) >> 28);
      }
      return codes;
    }
  }
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    const Pack<std::int8_t, kCount> from = codes(at);
    const float scale = ops::bits_float(scale_bits_at(bytes, layout.blocks.index_of(at.index)));
    Pack<float, kCount> values;
    for (int i = 0; i < kCount; ++i) values.v[i] = ops::int8_value(from.v[i], scale);
    return values;
  }
  template <int kCount>
  __device__ bool fine(At<kCount> at) const {
    const Pack<std::int8_t, kCount> from = codes(at);
    bool all = true;
    for (int i = 0; i < kCount; ++i) all = all && from.v[i] != (kPerByte == 1 ? -128 : -8);
    return all;
  }
  __device__ std::uint64_t parts() const { return layout.blocks.count(layout.n); }
  __device__ bool well_formed(std::uint64_t block) const {
    if (scale_bits_at(bytes, block) >= ops::kInfinityBits) return false;  // negative or not finite
    if (block > 0) return true;
    if (kPerByte == 2 && layout.n % 2 != 0 && static_cast<unsigned>(bytes[layout.bytes() - 1]) >= 16) return false;
    return header_at(bytes) == block_header(0, layout.blocks.values);
  }
};

struct IntCoder {
  float scale;
  float inverse;  // 1 / scale, or in the units of the stochastic rounding
  bool stochastic;
  __device__ std::int32_t code(float value, std::uint16_t random) const {
    if (scale == 0) return 0;
    return stochastic ? ops::round_stochastic(value, inverse, random) : ops::round_nearest(value, inverse);
  }
  __device__ float value(std::int32_t code) const { return ops::int8_value(static_cast<std::int8_t>(code), scale); }
};

template <int kPerByte>
struct IntFormat {
  Blocks blocks;
  bool stochastic;

  Layout<kPerByte> layout(std::size_t n) const { return {blocks, n}; }
  std::size_t bytes(std::size_t n) const { return layout(n).bytes(); }
  IntSource<kPerByte> source(const std::byte* bytes, std::size_t n) const { return {bytes, layout(n)}; }
  bool by_four(const std::byte*, std::size_t) const { return blocks.values % 4 == 0; }
  Status encode(const EncodeJob& job, const StreamKey& key, Stream& stream) const {
    return launch_encode_blocks(*this, job, key, stream);
  }

  __device__ bool is_random() const { return stochastic; }
  __device__ void put_header(std::byte* out, std::uint64_t) const {
    put_header_at(out, block_header(0, blocks.values));
  }
  __device__ bool has_sum() const { return false; }
  __device__ double term(float) const { return 0; }
  __device__ IntCoder coder(double, std::uint32_t, std::uint32_t max_bits) const {
    const float scale = ops::block_scale(max_bits, kPerByte == 1 ? ops::kInt8Most : ops::kInt4Most);
    return {scale, (stochastic ? ops::kFineUnits : 1.0F) / scale, stochastic};
  }
  __device__ void put_scale(std::byte* out, std::uint64_t block, const IntCoder& coder) const {
    put_scale_at(out, block, coder.scale);
  }
  // The codes begin at a multiple of 4, and so does every four of them where blocks are multiples of 4.
  __device__ void put_codes(std::byte* out, std::uint64_t n, std::uint64_t block, std::uint32_t offset,
                            std::uint32_t length, const Eight<std::int32_t>& codes) const {
    std::byte* const to = out + Layout<kPerByte>{blocks, n}.codes_begin();
    const std::uint64_t begin = block * blocks.values + offset;
    FLUVIAL_UNROLL
    for (int half = 0; half < 2; ++half) {
      const std::uint32_t at = offset_of(4 * half);
      Pack<std::int8_t, 4> four;
      for (int i = 0; i < 4; ++i) four.v[i] = static_cast<std::int8_t>(codes.v[4 * half + i]);
      if (offset + at < length) put_four(to, begin + at, length - offset - at, four);
    }
  }

 private:
  __device__ void put_four(std::byte* to, std::uint64_t index, std::uint32_t left,
                           const Pack<std::int8_t, 4>& codes) const {
    if constexpr (kPerByte == 1) {
      auto* const at = reinterpret_cast<std::int8_t*>(to) + index;
      if (left >= 4 && index % 4 == 0) {
        store_pack(at, codes);
        return;
      }
      FLUVIAL_UNROLL
      for (int i = 0; i < 4; ++i) {
        if (static_cast<std::uint32_t>(i) < left) at[i] = codes.v[i];
      }
    } else {
      Pack<std::uint8_t, 2> pairs;
      FLUVIAL_UNROLL
      for (int i = 0; i < 2; ++i) {
        pairs.v[i] = static_cast<std::uint8_t>((codes.v[2 * i] & 15) | (codes.v[2 * i + 1] & 15) << 4);
      }
      auto* const at = reinterpret_cast<std::uint8_t*>(to) + index / 2;
      if (left >= 3 && index % 4 == 0) {
        store_pack(at, pairs);
        return;
      }
      at[0] = pairs.v[0];
      if (left >= 3) at[1] = pairs.v[1];
    }
  }
};

template <int kPerByte>
MadeCodec make(const CodecSpec& spec) {
  const IntFormat<kPerByte> format{Blocks::of(spec.block_values), spec.stochastic};
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuDenseCodec<IntFormat<kPerByte>>>(spec, format));
}

}  // namespace

MadeCodec make_int_codec(const CodecSpec& spec) {
  return spec.kind == CodecKind::kInt8 ? make<1>(spec) : make<2>(spec);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
