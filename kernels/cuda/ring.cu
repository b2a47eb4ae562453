// ring: every value by itself, as a whole number of steps that the plan gives.
#include "kernels/cuda/dense.h"
#include "kernels/ops/int8.h"
#include "kernels/ops/philox.h"
#include "kernels/ops/ring.h"
#include "kernels/ring.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr std::uint32_t kHeaderBytes = 8;

struct Ring {
  std::uint64_t header;  // the chunk's first eight bytes
  float inverse;
  float step;
  std::int32_t most;
  bool stochastic;

  static Ring of(const CodecSpec& spec) {
    const int fraction_bits = ring_fraction_bits(spec);
    const auto low = static_cast<std::uint16_t>(fraction_bits);
    return {.header = std::uint64_t{1} | std::uint64_t{spec.bits} << 8 | std::uint64_t{low} << 16,
            .inverse = std::ldexp(1.0F, fraction_bits),
            .step = std::ldexp(1.0F, -fraction_bits),
            .most = ops::ring_most(spec.bits),
            .stochastic = spec.stochastic};
  }
};

// How codes lie, kBytes each from an address that is a multiple of eight; 0: half a byte.
template <int kBytes>
struct Codes {
  __host__ __device__ static std::uint64_t bytes(std::uint64_t n) { return kBytes == 0 ? (n + 1) / 2 : n * kBytes; }

  template <int kCount>
  __device__ static Pack<std::int32_t, kCount> load(const std::byte* codes, At<kCount> at) {
    Pack<std::int32_t, kCount> to;
    for (int i = 0; i < kCount; ++i) to.v[i] = load_one(codes, at.index + static_cast<std::uint64_t>(i));
    return to;
  }
  __device__ static std::int32_t load_one(const std::byte* codes, std::uint64_t i) {
    const auto* const unsigned_codes = reinterpret_cast<const std::uint8_t*>(codes);
    if constexpr (kBytes == 0) {
      const std::uint32_t bits = static_cast<std::uint32_t>(unsigned_codes[i / 2]) >> (4 * (i % 2));
      return static_cast<std::int32_t>(bits << 28) >> 28;
    } else if constexpr (kBytes == 3) {
      return ops::ring_code_of(unsigned_codes[3 * i], unsigned_codes[3 * i + 1], unsigned_codes[3 * i + 2]);
    } else if constexpr (kBytes == 2) {
      return reinterpret_cast<const std::int16_t*>(codes)[i];
    } else {
      return reinterpret_cast<const std::int8_t*>(codes)[i];
    }
  }
  // Of half a byte it takes two.
  __device__ static void store_one(std::byte* codes, std::uint64_t i, std::int32_t code, std::int32_t next) {
    auto* const unsigned_codes = reinterpret_cast<std::uint8_t*>(codes);
    if constexpr (kBytes == 0) {
      unsigned_codes[i / 2] = static_cast<std::uint8_t>((code & 15) | (next & 15) << 4);
    } else if constexpr (kBytes == 3) {
      for (int byte = 0; byte < 3; ++byte) {
        unsigned_codes[3 * i + static_cast<std::uint64_t>(byte)] = static_cast<std::uint8_t>(code >> (8 * byte) & 0xff);
      }
    } else if constexpr (kBytes == 2) {
      reinterpret_cast<std::int16_t*>(codes)[i] = static_cast<std::int16_t>(code);
    } else {
      reinterpret_cast<std::int8_t*>(codes)[i] = static_cast<std::int8_t>(code);
    }
  }
};

template <int kBytes>
struct RingSource {
  const std::byte* bytes;
  std::uint64_t n;
  Ring ring;

  __device__ std::uint64_t parts() const { return 1; }
  __device__ bool well_formed(std::uint64_t) const {
    const auto* const unsigned_bytes = reinterpret_cast<const std::uint8_t*>(bytes);
    for (std::uint32_t i = 0; i < kHeaderBytes; ++i) {
      if (unsigned_bytes[i] != static_cast<std::uint8_t>(ring.header >> (8 * i) & 0xff)) return false;
    }
    return kBytes != 0 || n % 2 == 0 || unsigned_bytes[kHeaderBytes + n / 2] < 16;
  }
  template <int kCount>
  __device__ bool fine(At<kCount> at) const {
    const Pack<std::int32_t, kCount> codes = Codes<kBytes>::load(bytes + kHeaderBytes, at);
    bool all = true;
    for (int i = 0; i < kCount; ++i) all = all && codes.v[i] >= -ring.most && codes.v[i] <= ring.most;
    return all;
  }
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    const Pack<std::int32_t, kCount> codes = Codes<kBytes>::load(bytes + kHeaderBytes, at);
    Pack<float, kCount> values;
    for (int i = 0; i < kCount; ++i) values.v[i] = ops::ring_value(codes.v[i], ring.step);
    return values;
  }
};

template <int kBytes>
struct EncodeRing {
  EncodeJob job;
  ops::RandomStream stream;
  Ring ring;

  __device__ std::int32_t code(float value, std::uint64_t index, std::uint16_t random) const {
    if (ops::magnitude_bits(value) >= ops::kInfinityBits) report_not_finite(job, index);
    const float steps = ops::ring_steps(value, ring.inverse, static_cast<float>(ring.most));
    return ring.stochastic ? ops::ring_stochastic(steps, random) : ops::ring_nearest(steps);
  }
  template <int kCount>
  __device__ Pack<std::uint16_t, kCount> random(std::uint64_t index) const {
    Pack<std::uint16_t, kCount> bits{};
    if (!ring.stochastic) return bits;
    const std::uint64_t coordinate = job.first_value + index;
    if (kCount == 4 && coordinate % 4 == 0) {  // four in a row come from one counter
      const std::uint64_t counter = ops::kRandomLanes * (coordinate / ops::kRandomGroup) + coordinate % 32 / 4;
      const ops::RandomPairs pairs = ops::philox_pairs(counter, stream.counter_high, stream.key);
      const std::uint64_t pair = pairs.pair[coordinate % 64 / 32];
      for (int i = 0; i < kCount; ++i) bits.v[i] = static_cast<std::uint16_t>(pair >> (16 * i));
      return bits;
    }
    for (int i = 0; i < kCount; ++i) {
      bits.v[i] = ops::random_bits(stream, coordinate + static_cast<std::uint64_t>(i));
    }
    return bits;
  }

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    if (at.index == 0) {
      for (std::uint32_t i = 0; i < kHeaderBytes; ++i)
        job.out[i] = static_cast<std::byte>(ring.header >> (8 * i) & 0xff);
    }
    if constexpr (kBytes == 0 && kCount == 1) {  // of two that share a byte the first is encoded with the second
      if (at.index % 2 == 0) run_two(at.index);
    } else {
      const Pack<float, kCount> values = at.load(job.x);
      const Pack<std::uint16_t, kCount> bits = random<kCount>(at.index);
      Pack<float, kCount> left;
      std::int32_t codes[kCount + 1] = {};
      for (int i = 0; i < kCount; ++i) {
        codes[i] = code(values.v[i], at.index + static_cast<std::uint64_t>(i), bits.v[i]);
        left.v[i] = values.v[i] - ops::ring_value(codes[i], ring.step);
      }
      for (int i = 0; i < kCount; i += kBytes == 0 ? 2 : 1) {
        Codes<kBytes>::store_one(job.out + kHeaderBytes, at.index + static_cast<std::uint64_t>(i), codes[i],
                                 codes[i + 1]);
      }
      if (job.residual != nullptr) at.store(job.residual, left);
    }
  }
  __device__ void run_two(std::uint64_t first) const {
    std::int32_t codes[2] = {};
    for (std::uint64_t i = 0; i < 2 && first + i < job.n; ++i) {
      const float value = job.x[first + i];
      codes[i] = code(value, first + i, random<1>(first + i).v[0]);
      if (job.residual != nullptr) job.residual[first + i] = value - ops::ring_value(codes[i], ring.step);
    }
    Codes<kBytes>::store_one(job.out + kHeaderBytes, first, codes[0], codes[1]);
  }
};

template <int kBytes>
struct RingFormat {
  Ring ring;

  std::size_t bytes(std::size_t n) const { return kHeaderBytes + Codes<kBytes>::bytes(n); }
  RingSource<kBytes> source(const std::byte* bytes, std::size_t n) const { return {bytes, n, ring}; }
  bool by_four(const std::byte*, std::size_t) const { return true; }
  Status encode(const EncodeJob& job, const StreamKey& key, Stream& stream) const {
    const bool by_four = fits_four(job.x) && fits_four(job.residual);
    return launch_each(EncodeRing<kBytes>{job, ops::random_stream(key.run, key.round, key.site), ring}, job.n, by_four,
                       stream);
  }
};

template <int kBytes>
MadeCodec make(const CodecSpec& spec) {
  return std::unique_ptr<DeviceCodec>(
      std::make_unique<GpuDenseCodec<RingFormat<kBytes>>>(spec, RingFormat<kBytes>{Ring::of(spec)}));
}

}  // namespace

MadeCodec make_ring_codec(const CodecSpec& spec) {
  if (spec.bits <= 4) return make<0>(spec);
  if (spec.bits <= 8) return make<1>(spec);
  return spec.bits <= 16 ? make<2>(spec) : make<3>(spec);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
