// fp32, fp16 and bf16: every value by itself.
#include "kernels/cuda/dense.h"
#include "kernels/ops/bf16.h"
#include "kernels/ops/fp16.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

struct Fp32 {
  using Stored = float;
  static constexpr bool kTakesAnything = true;
  __device__ static float encode(float value) { return value; }
  __device__ static float decode(float stored) { return stored; }
};

struct Fp16 {
  using Stored = std::uint16_t;
  static constexpr bool kTakesAnything = false;
  __device__ static std::uint16_t encode(float value) { return ops::fp16_from_float(value); }
  __device__ static float decode(std::uint16_t stored) { return ops::float_from_fp16(stored); }
};

struct Bf16 {
  using Stored = std::uint16_t;
  static constexpr bool kTakesAnything = false;
  __device__ static std::uint16_t encode(float value) { return ops::bf16_from_float(value); }
  __device__ static float decode(std::uint16_t stored) { return ops::float_from_bf16(stored); }
};

template <typename Float>
struct FloatSource {
  const typename Float::Stored* stored;

  __device__ std::uint64_t parts() const { return 0; }
  __device__ bool well_formed(std::uint64_t) const { return true; }
  template <int kCount>
  __device__ bool fine(At<kCount>) const {
    return true;
  }
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    const Pack<typename Float::Stored, kCount> from = at.load(stored);
    Pack<float, kCount> values;
    for (int i = 0; i < kCount; ++i) values.v[i] = Float::decode(from.v[i]);
    return values;
  }
};

template <typename Float>
struct EncodeOp {
  EncodeJob job;
  typename Float::Stored* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    Pack<float, kCount> values = at.load(job.x);
    Pack<typename Float::Stored, kCount> to;
    for (int i = 0; i < kCount; ++i) {
      to.v[i] = Float::encode(values.v[i]);
      if (!Float::kTakesAnything && ops::magnitude_bits(values.v[i]) >= ops::kInfinityBits) {
        report_not_finite(job, at.index + static_cast<std::uint64_t>(i));
      }
    }
    at.store(out, to);
    if (job.residual == nullptr) return;
    for (int i = 0; i < kCount; ++i) values.v[i] -= Float::decode(to.v[i]);
    at.store(job.residual, values);
  }
};

template <typename Float>
struct FloatFormat {
  using Stored = typename Float::Stored;

  std::size_t bytes(std::size_t n) const { return n * sizeof(Stored); }
  FloatSource<Float> source(const std::byte* bytes, std::size_t) const {
    return {reinterpret_cast<const Stored*>(bytes)};
  }
  bool by_four(const std::byte*, std::size_t) const { return true; }  // encoded bytes are aligned
  Status encode(const EncodeJob& job, const StreamKey&, Stream& stream) const {
    const bool by_four = fits_four(job.x) && fits_four(job.residual);
    return launch_each(EncodeOp<Float>{job, reinterpret_cast<Stored*>(job.out)}, job.n, by_four, stream);
  }
};

template <typename Float>
MadeCodec make(const CodecSpec& spec) {
  return std::unique_ptr<DeviceCodec>(std::make_unique<GpuDenseCodec<FloatFormat<Float>>>(spec, FloatFormat<Float>{}));
}

}  // namespace

MadeCodec make_float_codec(const CodecSpec& spec) {
  if (spec.kind == CodecKind::kFp32) return make<Fp32>(spec);
  return spec.kind == CodecKind::kFp16 ? make<Fp16>(spec) : make<Bf16>(spec);
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
