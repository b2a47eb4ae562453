// What a backend provides for device_robust.h; arguments were checked, lengths and counts are above zero. Internal.
#pragma once

#include "kernels/device_robust.h"

namespace fluvial::kernels {

using UpdateWeights = std::span<const std::uint32_t>;  // empty: of rules that count updates

class DeviceRobustOps {
 public:
  virtual ~DeviceRobustOps() = default;
  virtual Status median(DeviceUpdates updates, UpdateWeights weights, DeviceSpan<std::byte> workspace,
                        DeviceSpan<float> out, Stream& stream) = 0;
  virtual Status trimmed_mean(DeviceUpdates updates, UpdateWeights weights, std::uint64_t drop,
                              DeviceSpan<std::byte> workspace, DeviceSpan<float> out, Stream& stream) = 0;
  virtual Status bulyan(DeviceUpdates chosen, std::size_t f, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                        Stream& stream) = 0;
  virtual Status add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                               Stream& stream) = 0;
  virtual Status add_center_distances(DeviceUpdates updates, std::span<const double> coefficients,
                                      DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                                      Stream& stream) = 0;
  virtual Status scale(DeviceSpan<float> values, double factor, Stream& stream) = 0;
  // scale() by clip_factor() of the sum of `lanes`, where that is finite; the lanes may be used up.
  virtual Status clip(DeviceSpan<float> values, DeviceSpan<double> lanes, double bound, Stream& stream) = 0;
};

DeviceRobustOps& cpu_robust_ops();

}  // namespace fluvial::kernels
