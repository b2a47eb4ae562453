// Robust rules of robust.h on a device, to the CPU's bits: for updates in device memory, 1 to kReduceInputsMax, of one
// length (checked), finite (device_screen): of others what comes out is not stated. Which update counts is then for
// krum_scores(), multi_krum() and bulyan_select() on the host, which take the distances.
#pragma once

#include <span>

#include "kernels/device.h"
#include "kernels/robust.h"

namespace fluvial::kernels {

using DeviceUpdates = std::span<const DeviceSpan<const float>>;
inline constexpr std::size_t kDistancePieces = 512;  // of kDistancePiece, whose sums wait in the workspace

// For all of these; aligned to 8 bytes.
std::size_t device_robust_workspace_bytes(std::size_t update_count);

// `out` may be one of the updates.
Status device_coordinate_median(DeviceUpdates updates, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                                Stream& stream);
// kInvalidArgument unless more than 2 drop updates are there.
Status device_trimmed_mean(DeviceUpdates updates, std::size_t drop, DeviceSpan<std::byte> workspace,
                           DeviceSpan<float> out, Stream& stream);
// distances += those of this chunk, pair_index(i, j) of pair_count(n).
Status device_add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                            Stream& stream);

}  // namespace fluvial::kernels
