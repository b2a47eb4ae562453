// A codec that has a value for every coordinate, on a GPU: the passes over decoded values, once for all of them. A
// format gives a source of values, and encodes. Internal.
#pragma once

#include <cmath>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/screen.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels::FLUVIAL_GPU {

template <typename Source>
struct DecodeOp {
  Source source;
  float* out;
  template <int kCount>
  __device__ void run(At<kCount> at) const {
    at.store(out, source.value(at));
  }
};

template <typename Source, int kCount>
__device__ Pack<float, kCount> values_at(const Source& source, At<kCount> at) {
  return source.value(at);
}
template <typename Source>
__device__ Pack<float, 4> values_at(const Source& source, const Pairs& at) {
  return Pairs::joined(source.value(at.one), source.value(at.other));
}

template <typename Source>
struct AccumulateOp {
  Source source;
  double factor;
  std::int64_t* sum;
  const std::uint32_t* may_add;
  template <typename Where>
  __device__ void run(Where at) const {
    if (*may_add == 0) return;
    Pack<std::int64_t, Where::count> sums = at.load(sum);
    const Pack<float, Where::count> values = values_at(source, at);
    for (int i = 0; i < Where::count; ++i) {
      sums.v[i] = ops::wrapping_add(sums.v[i], ops::to_fixed(ops::fixed_product(values.v[i], factor)));
    }
    at.store(sum, sums);
  }
};

template <typename Source>
struct AddOp {
  Source source;
  float weight;
  float* sum;
  template <int kCount>
  __device__ void run(At<kCount> at) const {
    const Pack<float, kCount> values = source.value(at);
    Pack<float, kCount> sums = at.load(sum);
    for (int i = 0; i < kCount; ++i) sums.v[i] += weight * values.v[i];
    at.store(sum, sums);
  }
};

template <typename Source>
struct ResidualOp {
  Source source;
  const float* values;
  float* out;
  template <int kCount>
  __device__ void run(At<kCount> at) const {
    Pack<float, kCount> left = at.load(values);
    const Pack<float, kCount> decoded = source.value(at);
    for (int i = 0; i < kCount; ++i) left.v[i] -= decoded.v[i];
    at.store(out, left);
  }
};

// Where an encoder puts its results; pointers into device memory.
struct EncodeJob {
  const float* x;
  std::uint64_t n;
  std::uint64_t first_value;  // the coordinate of x[0]
  std::byte* out;
  float* residual;  // or null
  ChunkOutcome* outcome;
};

__device__ inline void report_not_finite(const EncodeJob& job, std::uint64_t index) {
  atomicMin(&job.outcome->not_finite_at, static_cast<ChunkOutcome::Coordinate>(job.first_value + index));
}

// Format: Source source(bytes, n); bool by_four(); std::size_t bytes(n); Status encode(job, key, stream). All const.
template <typename Format>
class GpuDenseCodec : public DeviceCodec {
 public:
  GpuDenseCodec(const CodecSpec& spec, const Format& format) : spec_(spec), format_(format) {}

  const CodecSpec& spec() const override { return spec_; }
  std::size_t encoded_bytes_max(std::size_t value_count) const override { return format_.bytes(value_count); }
  std::size_t workspace_bytes(const VectorSchema&) const override { return 0; }

  Result<DevicePlan> prepare(const VectorSchema& schema, DeviceSpan<const float> vector, const StreamKey& key,
                             DeviceSpan<std::byte>, DeviceSpan<std::byte> workspace, Stream&) const override {
    return DevicePlan{.layout = schema.layout, .key = key, .values = vector, .workspace = workspace, .host = {}};
  }
  Status decode_chunk(DeviceSpan<const std::byte> bytes, DeviceSpan<float> out, Stream& stream) const override {
    FLUVIAL_TRY(check_length(bytes, out.size()));
    const auto source = format_.source(bytes.data(), out.size());
    return each(DecodeOp<Source>{source, out.data()}, out.size(), fits_four(out.data()), bytes, stream);
  }
  Status decode_add_chunk(DeviceSpan<const std::byte> bytes, float weight, DeviceSpan<float> sum,
                          Stream& stream) const override {
    FLUVIAL_TRY(check_length(bytes, sum.size()));
    const auto source = format_.source(bytes.data(), sum.size());
    return each(AddOp<Source>{source, weight, sum.data()}, sum.size(), fits_four(sum.data()), bytes, stream);
  }

 protected:
  Status encode(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome,
                Stream& stream) const override {
    outcome->bytes = format_.bytes(chunk.size());
    return format_.encode(job_of(plan, chunk_index, chunk, out, residual, outcome), plan.key, stream);
  }
  Status screen(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) const override {
    if (!check_length(bytes, value_count).ok()) {
      outcome->malformed = 1;
      return {};
    }
    return launch_screen(format_.source(bytes.data(), value_count), value_count, first_value,
                         format_.by_four(bytes.data(), value_count), workspace, outcome, stream);
  }
  Status accumulate(DeviceSpan<const std::byte> bytes, std::uint32_t weight, int scale_bits,
                    DeviceSpan<std::int64_t> sum, DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                    Stream& stream) const override {
    const double factor = std::ldexp(static_cast<double>(weight), scale_bits);
    FLUVIAL_TRY(check_length(bytes, sum.size()));
    FLUVIAL_ASSIGN(const std::uint32_t* const may_add, launch_verdict(factor, workspace, outcome, stream));
    const auto source = format_.source(bytes.data(), sum.size());
    const bool by_pairs = fits_four(sum.data()) && format_.by_four(bytes.data(), sum.size());
    return launch_pairs(AccumulateOp<Source>{source, factor, sum.data(), may_add}, sum.size(), by_pairs, stream);
  }
  Status residual(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                  Stream& stream) const override {
    FLUVIAL_TRY(check_length(bytes, out.size()));
    const auto source = format_.source(bytes.data(), out.size());
    return each(ResidualOp<Source>{source, values.data(), out.data()}, out.size(),
                fits_four(values.data()) && fits_four(out.data()), bytes, stream);
  }

  const Format& format() const { return format_; }
  static EncodeJob job_of(const DevicePlan& plan, std::size_t chunk_index, DeviceSpan<const float> chunk,
                          DeviceSpan<std::byte> out, DeviceSpan<float> residual, ChunkOutcome* outcome) {
    return {.x = chunk.data(),
            .n = chunk.size(),
            .first_value = plan.layout.first_value(chunk_index),
            .out = out.data(),
            .residual = residual.empty() ? nullptr : residual.data(),
            .outcome = outcome};
  }

 private:
  using Source = decltype(std::declval<const Format&>().source(nullptr, 0));

  Status check_length(DeviceSpan<const std::byte> bytes, std::size_t value_count) const {
    if (bytes.size() == format_.bytes(value_count)) return {};
    return Error{Code::kDataLoss, "a chunk of " + std::to_string(bytes.size()) + " bytes, expected " +
                                      std::to_string(format_.bytes(value_count))};
  }
  template <typename Op>
  Status each(const Op& op, std::size_t n, bool others_by_four, DeviceSpan<const std::byte> bytes,
              Stream& stream) const {
    if (n == 0) return {};
    return launch_each(op, n, others_by_four && format_.by_four(bytes.data(), n), stream);
  }

  CodecSpec spec_;
  Format format_;
};

}  // namespace fluvial::kernels::FLUVIAL_GPU
