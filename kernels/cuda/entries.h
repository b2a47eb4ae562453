// Chunks that hold some coordinates' values, on a GPU: the operations on an entry, and the verbs that read, once for
// all of them. Internal.
#pragma once

#include <algorithm>
#include <cmath>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/screen.h"
#include "kernels/ops/fixed.h"

namespace fluvial::kernels::FLUVIAL_GPU {

struct SetEntry {
  float* out;
  __device__ void entry(std::uint32_t index, float value) const { out[index] = value; }
};
struct AccumulateEntry {
  double factor;
  std::int64_t* sum;
  const std::uint32_t* may_add;
  __device__ void entry(std::uint32_t index, float value) const {
    if (*may_add == 0) return;
    sum[index] = ops::wrapping_add(sum[index], ops::to_fixed(ops::fixed_product(value, factor)));
  }
};
struct AddEntry {
  float weight;
  float* sum;
  __device__ void entry(std::uint32_t index, float value) const { sum[index] += weight * value; }
};
struct TakeEntry {
  float* out;
  __device__ void entry(std::uint32_t index, float value) const { out[index] -= value; }
};
struct PassEntry {
  __device__ void entry(std::uint32_t, float) const {}
};

// The values of a chunk in the order of its entries, for the screen: zeros after the last.
struct EntryValues {
  const std::byte* bytes;
  std::uint64_t most;
  std::uint32_t header_bytes;

  __device__ std::uint64_t entries() const {
    const auto header = load_pack<Pack<std::uint64_t, 1>>(reinterpret_cast<const std::uint64_t*>(bytes)).v[0];
    return header >> 32 < most ? header >> 32 : most;
  }
  __device__ std::uint64_t parts() const { return 0; }
  __device__ bool well_formed(std::uint64_t) const { return true; }
  template <int kCount>
  __device__ Pack<float, kCount> load(At<kCount> at) const {
    Pack<float, kCount> values{};
    const std::uint64_t count = entries();
    for (std::uint64_t i = 0; i < kCount; ++i) {
      if (at.index + i >= count) continue;
      const auto* const from = reinterpret_cast<const float*>(bytes + header_bytes) + at.index + i;
      values.v[i] = load_pack<Pack<float, 1>>(from).v[0];
    }
    return values;
  }
  // A value that is not finite makes the chunk malformed: the host finds out its coordinate.
  template <int kCount>
  __device__ Pack<float, kCount> value(At<kCount> at) const {
    Pack<float, kCount> values = load(at);
    for (float& value : values.v) value = ops::magnitude_bits(value) < ops::kInfinityBits ? value : 0;
    return values;
  }
  template <int kCount>
  __device__ bool fine(At<kCount> at) const {
    bool all = true;
    for (const float value : load(at).v) all = all && ops::magnitude_bits(value) < ops::kInfinityBits;
    return all;
  }
};

// The verbs that read. Form: kHeaderBytes, of which the second four count the entries, whose values follow; and
// Status walk(bytes, n, op, outcome, stream), which calls op.entry(index, value) on the device for each entry that is
// in the bytes and below n, no index twice, and tells the outcome, when there is one, that the bytes are no chunk.
template <typename Form>
class EntryCodec : public DeviceCodec {
 public:
  explicit EntryCodec(const CodecSpec& spec) : spec_(spec) {}
  const CodecSpec& spec() const final { return spec_; }

  Status decode_chunk(DeviceSpan<const std::byte> bytes, DeviceSpan<float> out, Stream& stream) const final {
    if (!out.empty()) FLUVIAL_TRY(stream.backend().zero(out.data(), out.size_bytes(), stream.get()));
    return Form::walk(bytes, out.size(), SetEntry{out.data()}, nullptr, stream);
  }
  Status decode_add_chunk(DeviceSpan<const std::byte> bytes, float weight, DeviceSpan<float> sum,
                          Stream& stream) const final {
    return Form::walk(bytes, sum.size(), AddEntry{weight, sum.data()}, nullptr, stream);
  }

 protected:
  Status screen(DeviceSpan<const std::byte> bytes, std::size_t value_count, std::uint64_t first_value,
                DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) const final {
    if (bytes.size() < Form::kHeaderBytes) {
      outcome->malformed = 1;
      return {};
    }
    const std::uint64_t most =
        std::min<std::uint64_t>((bytes.size() - Form::kHeaderBytes) / sizeof(float), value_count);
    FLUVIAL_TRY(launch_screen(EntryValues{bytes.data(), most, Form::kHeaderBytes}, most, first_value, true, workspace,
                              outcome, stream));
    return Form::walk(bytes, value_count, PassEntry{}, outcome, stream);
  }
  Status accumulate(DeviceSpan<const std::byte> bytes, std::uint32_t weight, int scale_bits,
                    DeviceSpan<std::int64_t> sum, DeviceSpan<std::byte> workspace, ChunkOutcome* outcome,
                    Stream& stream) const final {
    const double factor = std::ldexp(static_cast<double>(weight), scale_bits);
    FLUVIAL_ASSIGN(const std::uint32_t* const may_add, launch_verdict(factor, workspace, outcome, stream));
    return Form::walk(bytes, sum.size(), AccumulateEntry{factor, sum.data(), may_add}, nullptr, stream);
  }
  Status residual(DeviceSpan<const float> values, DeviceSpan<const std::byte> bytes, DeviceSpan<float> out,
                  Stream& stream) const override {
    if (values.data() != out.data()) {
      FLUVIAL_TRY(stream.backend().copy(out.data(), values.data(), out.size_bytes(), stream.get()));
    }
    return Form::walk(bytes, out.size(), TakeEntry{out.data()}, nullptr, stream);
  }

 private:
  CodecSpec spec_;
};

}  // namespace fluvial::kernels::FLUVIAL_GPU
