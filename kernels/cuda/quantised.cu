// qsgd (packed form) and terngrad: codes that are packed across values, so a warp puts them into shared memory first.
#include "kernels/cuda/blocks.h"
#include "kernels/ops/int8.h"
#include "kernels/ops/qsgd.h"
#include "kernels/ops/terngrad.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr std::uint32_t kBlockMost = 2048;

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

// Format::code_at(bytes of a block, values of the block, index in it) reads a code.
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
    const std::byte* const from = bytes + layout.codes_at(block);
    Pack<std::int32_t, kCount> codes;
    for (int i = 0; i < kCount; ++i) {
      codes.v[i] = layout.format.code_at(from, layout.length(block), offset + static_cast<std::uint32_t>(i));
    }
    return codes;
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
  __device__ bool has_header(const std::byte* bytes, std::uint64_t n) const {
    return header_at(bytes) == (block_header(0, blocks.values) | n << 32) &&
           scale_bits_at(bytes, 0) == static_cast<std::uint32_t>(levels);
  }
  __device__ bool ends_well(const std::byte* from, std::uint32_t values) const {
    const std::uint32_t used = values * width % 8;
    return used == 0 || static_cast<std::uint32_t>(from[block_bytes(values) - 1]) >> used == 0;
  }

  __device__ bool is_random() const { return true; }
  __device__ void put_header(std::byte* out, std::uint64_t n) const {
    put_header_at(out, block_header(0, blocks.values) | n << 32);
    put_scale_at(out, 0, ops::bits_float(static_cast<std::uint32_t>(levels)));
  }
  __device__ QsgdCoder coder(const float* x, std::uint32_t length, std::uint32_t) const {
    const float step = ops::qsgd_step(lane_sum(x, length, square), levels);
    return {step, ops::kFineUnits / step, levels};
  }
  __device__ void put_scale(std::byte* out, std::uint64_t block, const QsgdCoder& coder) const {
    put_scale_at(out + kHeader - kHeaderBytes, block, coder.step);
  }
  // A step's codes begin at a byte: 256 of them take 32 bytes a bit.
  __device__ void put_codes(std::byte* out, std::uint64_t n, std::uint64_t block, std::uint32_t offset,
                            std::uint32_t length, const Eight<std::int32_t>& codes) const {
    __shared__ std::int8_t staged[kBlockThreads / kWarp][kStepValues];
    std::int8_t* const mine = staged[warp_id()];
    stage(mine, codes);
    __syncwarp();
    const std::uint32_t here = length - offset < kStepValues ? length - offset : kStepValues;
    std::byte* const to = out + Layout{*this, n}.codes_at(block) + offset / 8 * width;
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
  __device__ std::int32_t code_at(const std::byte* from, std::uint32_t values, std::uint32_t index) const {
    const auto width = static_cast<std::uint32_t>(block_bytes(values));
    const ops::TernaryPlace place = ops::ternary_place(static_cast<std::int32_t>(index / width));
    return ops::ternary_digit(static_cast<std::int8_t>(from[index % width]), place);
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
      if (code_at(from, values, i) != 0) return false;
    }
    return true;
  }

  __device__ bool is_random() const { return true; }
  __device__ void put_header(std::byte* out, std::uint64_t n) const {
    put_header_at(out, block_header(0, blocks.values) | n << 32);
  }
  __device__ TernCoder coder(const float* x, std::uint32_t length, std::uint32_t max_bits) const {
    const double norm_squared = clip > 0 ? lane_sum(x, length, square) : 0.0;
    const float scale = ops::terngrad_scale(max_bits, norm_squared, length, clip);
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

std::uint32_t bits_of(std::uint32_t value) {
  std::uint32_t bits = 0;
  for (; value != 0; value >>= 1) ++bits;
  return bits;
}

}  // namespace

MadeCodec make_quantised_codec(const CodecSpec& spec) {
  const Blocks blocks = Blocks::of(spec.block_values);
  if (spec.kind == CodecKind::kTernGrad) {
    return std::unique_ptr<DeviceCodec>(
        std::make_unique<GpuDenseCodec<TernFormat>>(spec, TernFormat{blocks, spec.clip}));
  }
  if (spec.elias) return Error{Code::kFailedPrecondition, "qsgd:encoding=elias runs on the CPU alone"};
  const QsgdFormat format{blocks, static_cast<std::int32_t>(spec.levels), bits_of(spec.levels) + 1};
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuDenseCodec<QsgdFormat>>(spec, format));
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
