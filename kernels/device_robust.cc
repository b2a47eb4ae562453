#include "kernels/device_robust.h"

#include <algorithm>
#include <array>
#include <cmath>

#include "core/base/format.h"
#include "kernels/device_backend.h"
#include "kernels/device_robust_ops.h"
#include "kernels/robust_parts.h"

namespace fluvial::kernels {
namespace {

constexpr std::size_t kLanesBytes = sizeof(SquareLanes);

DeviceRobustOps& ops_of(Stream& stream) { return stream.backend().robust_ops(); }

Error invalid(std::string message) { return {Code::kInvalidArgument, std::move(message)}; }

Status check_workspace(DeviceSpan<std::byte> workspace, std::size_t expected) {
  if (workspace.size() >= expected && reinterpret_cast<std::uintptr_t>(workspace.data()) % 8 == 0) return {};
  return invalid(format_text("a workspace of {} bytes, expected {}, aligned to 8", workspace.size(), expected));
}

Status check(DeviceUpdates updates, std::size_t value_count, DeviceSpan<std::byte> workspace) {
  if (updates.empty() || updates.size() > kReduceInputsMax) {
    return invalid(format_text("{} updates, expected 1 to {}", updates.size(), kReduceInputsMax));
  }
  for (const auto& update : updates) FLUVIAL_CHECK(update.size() == value_count, "updates of different lengths");
  return check_workspace(workspace, device_robust_workspace_bytes(updates.size()));
}

std::size_t length_of(DeviceUpdates updates) { return updates.empty() ? 0 : updates[0].size(); }

// The workspace begins with the distances themselves; the sums to be added follow.
class DeviceDistances final : public CenterDistances {
 public:
  DeviceDistances(DeviceUpdates updates, DeviceSpan<std::byte> workspace, Stream& stream)
      : updates_(updates),
        distances_(reinterpret_cast<double*>(workspace.data()), updates.size()),
        workspace_(workspace.subspan(distances_.size_bytes())),
        stream_(stream) {}

  Status measure(std::span<const double> coefficients, std::span<double> distances) override {
    FLUVIAL_TRY(fill_zero({reinterpret_cast<std::byte*>(distances_.data()), distances_.size_bytes()}, stream_));
    if (length_of(updates_) > 0) {
      FLUVIAL_TRY(ops_of(stream_).add_center_distances(updates_, coefficients, distances_, workspace_, stream_));
    }
    FLUVIAL_TRY(copy_to_host(DeviceSpan<const double>(distances_), distances, stream_));
    return stream_.synchronize();
  }

 private:
  DeviceUpdates updates_;
  DeviceSpan<double> distances_;
  DeviceSpan<std::byte> workspace_;
  Stream& stream_;
};

}  // namespace

std::size_t device_robust_workspace_bytes(std::size_t update_count) {
  const std::size_t sums = std::max(pair_count(update_count), update_count);
  return std::max(robust_workspace_bytes(update_count, true), kDistancePieces * sums * sizeof(double)) +
         update_count * sizeof(double);
}

Status device_coordinate_median(DeviceUpdates updates, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                                Stream& stream) {
  FLUVIAL_TRY(check(updates, out.size(), workspace));
  return out.empty() ? Status() : ops_of(stream).median(updates, {}, workspace, out, stream);
}

Status device_weighted_median(DeviceUpdates updates, std::span<const std::uint32_t> weights,
                              DeviceSpan<std::byte> workspace, DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check(updates, out.size(), workspace));
  FLUVIAL_TRY(sum_of_weights(weights, updates.size()));
  return out.empty() ? Status() : ops_of(stream).median(updates, weights, workspace, out, stream);
}

Status device_trimmed_mean(DeviceUpdates updates, std::size_t drop, DeviceSpan<std::byte> workspace,
                           DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check(updates, out.size(), workspace));
  FLUVIAL_TRY(check_drop("updates", updates.size(), drop));
  return out.empty() ? Status() : ops_of(stream).trimmed_mean(updates, {}, drop, workspace, out, stream);
}

Status device_weighted_trimmed_mean(DeviceUpdates updates, std::span<const std::uint32_t> weights, std::uint64_t drop,
                                    DeviceSpan<std::byte> workspace, DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check(updates, out.size(), workspace));
  FLUVIAL_ASSIGN(const std::uint64_t total, sum_of_weights(weights, updates.size()));
  FLUVIAL_TRY(check_drop("of weight", total, drop));
  return out.empty() ? Status() : ops_of(stream).trimmed_mean(updates, weights, drop, workspace, out, stream);
}

Status device_bulyan_combine(DeviceUpdates chosen, std::size_t f, DeviceSpan<std::byte> workspace,
                             DeviceSpan<float> out, Stream& stream) {
  FLUVIAL_TRY(check(chosen, out.size(), workspace));
  FLUVIAL_TRY(check_drop("updates", chosen.size(), f));
  return out.empty() ? Status() : ops_of(stream).bulyan(chosen, f, workspace, out, stream);
}

Status device_add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                            Stream& stream) {
  FLUVIAL_TRY(check(updates, length_of(updates), workspace));
  FLUVIAL_CHECK(distances.size() == pair_count(updates.size()), "a distance for each pair");
  if (distances.empty() || updates[0].empty()) return {};
  return ops_of(stream).add_distances(updates, distances, workspace, stream);
}

Status device_add_center_distances(DeviceUpdates updates, std::span<const double> coefficients,
                                   DeviceSpan<double> distances, DeviceSpan<std::byte> workspace, Stream& stream) {
  FLUVIAL_TRY(check(updates, length_of(updates), workspace));
  FLUVIAL_CHECK(coefficients.size() == updates.size() && distances.size() == updates.size(),
                "a coefficient and a distance for each update");
  if (updates[0].empty()) return {};
  return ops_of(stream).add_center_distances(updates, coefficients, distances, workspace, stream);
}

Result<WeiszfeldReport> device_geometric_median(DeviceUpdates updates, std::span<const std::uint32_t> weights,
                                                const WeiszfeldOptions& options, std::span<double> coefficients,
                                                DeviceSpan<std::byte> workspace, Stream& stream) {
  FLUVIAL_TRY(check(updates, length_of(updates), workspace));
  FLUVIAL_CHECK(coefficients.size() == updates.size(), "a coefficient for each update");
  DeviceDistances center(updates, workspace, stream);
  std::array<double, kReduceInputsMax> distances;
  return iterate_weiszfeld(center, weights, options, std::span(distances).first(updates.size()), coefficients);
}

Status device_centered_clipping(DeviceUpdates updates, double tau, std::size_t iterations,
                                std::span<double> coefficients, DeviceSpan<std::byte> workspace, Stream& stream) {
  FLUVIAL_TRY(check(updates, length_of(updates), workspace));
  FLUVIAL_CHECK(coefficients.size() == updates.size(), "a coefficient for each update");
  DeviceDistances center(updates, workspace, stream);
  std::array<double, kReduceInputsMax> distances;
  return iterate_clipping(center, tau, iterations, std::span(distances).first(updates.size()), coefficients);
}

Status device_scale_in_place(DeviceSpan<float> values, double factor, std::uint64_t first_value,
                             DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) {
  FLUVIAL_CHECK(factor >= 0 && factor <= 1, "a factor from 0 to 1");
  FLUVIAL_TRY(check_workspace(workspace, device_screen_workspace_bytes(values.size())));
  if (!values.empty()) FLUVIAL_TRY(ops_of(stream).scale(values, factor, stream));
  return device_screen(values, first_value, workspace, outcome, stream);
}

Status device_clip_norm(DeviceSpan<float> values, double bound, std::uint64_t first_value,
                        DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream) {
  FLUVIAL_TRY(clip_factor(0, bound));  // checks it
  FLUVIAL_TRY(check_workspace(workspace, device_clip_workspace_bytes(values.size())));
  if (!values.empty()) {
    const DeviceSpan<double> lanes(reinterpret_cast<double*>(workspace.data()), kLanesBytes / sizeof(double));
    FLUVIAL_TRY(fill_zero(workspace.first(kLanesBytes), stream));
    FLUVIAL_TRY(device_add_squares(values, lanes, workspace.subspan(kLanesBytes), stream));
    FLUVIAL_TRY(ops_of(stream).clip(values, lanes, bound, stream));
  }
  return device_screen(values, first_value, workspace.subspan(kLanesBytes), outcome, stream);
}

std::size_t device_clip_workspace_bytes(std::size_t value_count) {
  return kLanesBytes +
         std::max(device_screen_workspace_bytes(value_count), device_squares_workspace_bytes(value_count));
}

}  // namespace fluvial::kernels
