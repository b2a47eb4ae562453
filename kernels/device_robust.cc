#include "kernels/device_robust.h"

#include <algorithm>

#include "core/base/format.h"
#include "kernels/device_backend.h"

namespace fluvial::kernels {
namespace {

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status check(DeviceUpdates updates, std::size_t value_count, DeviceSpan<std::byte> workspace) {
  if (updates.empty() || updates.size() > kReduceInputsMax) {
    return invalid(format_text("{} updates, expected 1 to {}", updates.size(), kReduceInputsMax));
  }
  for (const auto& update : updates) FLUVIAL_CHECK(update.size() == value_count, "updates of different lengths");
  const std::size_t expected = device_robust_workspace_bytes(updates.size());
  if (workspace.size() >= expected) return {};
  return invalid(format_text("a workspace of {} bytes, expected {}", workspace.size(), expected));
}

}  // namespace

std::size_t device_robust_workspace_bytes(std::size_t update_count) {
  return std::max(robust_workspace_bytes(update_count, false),
                  kDistancePieces * pair_count(update_count) * sizeof(double));
}

Status device_coordinate_median(DeviceUpdates updates, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                                Stream& stream) {
  FLUVIAL_TRY(check(updates, out.size(), workspace));
  return out.empty() ? Status() : stream.backend().vector_ops().median(updates, workspace, out, stream);
}

Status device_trimmed_mean(DeviceUpdates updates, std::size_t drop, DeviceSpan<std::byte> workspace,
                           DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check(updates, out.size(), workspace));
  if (drop >= (updates.size() + 1) / 2) {
    return invalid(format_text("{} updates without {} on each side: none is left", updates.size(), drop));
  }
  return out.empty() ? Status() : stream.backend().vector_ops().trimmed_mean(updates, drop, workspace, out, stream);
}

Status device_add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                            Stream& stream) {
  FLUVIAL_TRY(check(updates, updates.empty() ? 0 : updates[0].size(), workspace));
  FLUVIAL_CHECK(distances.size() == pair_count(updates.size()), "a distance for each pair");
  return stream.backend().vector_ops().add_distances(updates, distances, workspace, stream);
}

}  // namespace fluvial::kernels
