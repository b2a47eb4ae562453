// The CPU's side of device_codec.h. Internal.
#pragma once

#include <memory>
#include <span>

#include "kernels/device_codec.h"

namespace fluvial::kernels {

Result<std::unique_ptr<DeviceCodec>> make_cpu_device_codec(const CodecSpec& spec);

// A screen's answer; when it is an error, the first of `values` that is not finite, or malformed when all are.
void cpu_outcome(const Result<ScreenReport>& report, std::span<const float> values, std::uint64_t first_value,
                 ChunkOutcome* outcome);

}  // namespace fluvial::kernels
