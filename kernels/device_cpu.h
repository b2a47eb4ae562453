// What the CPU's sides of the device headers share. Internal.
#pragma once

#include <array>
#include <memory>
#include <span>

#include "kernels/device_codec.h"
#include "kernels/reduce.h"

namespace fluvial::kernels {

template <typename T>
std::span<T> host(DeviceSpan<T> span) {
  return {span.data(), span.size()};
}

class HostSpans {
 public:
  explicit HostSpans(std::span<const DeviceSpan<const float>> vectors) : count_(vectors.size()) {
    for (std::size_t k = 0; k < count_; ++k) spans_[k] = host(vectors[k]);
  }
  std::span<const std::span<const float>> spans() const { return std::span(spans_).first(count_); }

 private:
  std::array<std::span<const float>, kReduceInputsMax> spans_;
  std::size_t count_;
};

Result<std::unique_ptr<DeviceCodec>> make_cpu_device_codec(const CodecSpec& spec);

// A screen's answer; when it is an error, the first of `values` that is not finite, or malformed when all are.
void cpu_outcome(const Result<ScreenReport>& report, std::span<const float> values, std::uint64_t first_value,
                 ChunkOutcome* outcome);

}  // namespace fluvial::kernels
