// The CPU's robust rules behind the interface of the devices.
#include <algorithm>

#include "kernels/device_cpu.h"
#include "kernels/device_robust_ops.h"
#include "kernels/pieces.h"

namespace fluvial::kernels {
namespace {

class CpuRobustOps final : public DeviceRobustOps {
 public:
  Status median(DeviceUpdates updates, UpdateWeights weights, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                Stream&) override {
    const HostSpans from(updates);
    return weights.empty() ? coordinate_median(from.spans(), host(workspace), host(out))
                           : weighted_median(from.spans(), weights, host(workspace), host(out));
  }
  Status trimmed_mean(DeviceUpdates updates, UpdateWeights weights, std::uint64_t drop, DeviceSpan<std::byte> workspace,
                      DeviceSpan<float> out, Stream&) override {
    const HostSpans from(updates);
    return weights.empty()
               ? kernels::trimmed_mean(from.spans(), static_cast<std::size_t>(drop), host(workspace), host(out))
               : weighted_trimmed_mean(from.spans(), weights, drop, host(workspace), host(out));
  }
  Status bulyan(DeviceUpdates chosen, std::size_t f, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                Stream&) override {
    return bulyan_combine(HostSpans(chosen).spans(), f, host(workspace), host(out));
  }
  Status add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte>, Stream&) override {
    return kernels::add_distances(HostSpans(updates).spans(), host(distances));
  }
  Status add_center_distances(DeviceUpdates updates, std::span<const double> coefficients, DeviceSpan<double> distances,
                              DeviceSpan<std::byte>, Stream&) override {
    return kernels::add_center_distances(HostSpans(updates).spans(), coefficients, host(distances));
  }
  Status scale(DeviceSpan<float> values, double factor, Stream&) override {
    scale_in_place(host(values), factor);
    return {};
  }
  Status clip(DeviceSpan<float> values, DeviceSpan<double> lanes, double bound, Stream&) override {
    SquareLanes squares;
    std::copy_n(lanes.data(), squares.size(), squares.begin());
    const Result<double> factor = clip_factor(sum_lanes(squares), bound);
    if (factor.ok() && *factor < 1) scale_in_place(host(values), *factor);
    return {};
  }
};

}  // namespace

DeviceRobustOps& cpu_robust_ops() {
  static CpuRobustOps ops;
  return ops;
}

}  // namespace fluvial::kernels
