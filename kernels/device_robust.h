// Robust rules of robust.h, and norm clipping of reduce.h, on a device, to the CPU's bits: for 1 to kReduceInputsMax
// updates in device memory, of one length (checked) and finite (device_screen). Unless stated, the result for other
// values is undefined. Multi-Krum: device_add_distances(), multi_krum() of the distances on the host, and
// device_reduce_mean() of the updates that it chose; Bulyan in the same way, with device_bulyan_combine().
#pragma once

#include <span>

#include "kernels/device.h"
#include "kernels/device_vector.h"
#include "kernels/robust.h"

namespace fluvial::kernels {

using DeviceUpdates = std::span<const DeviceSpan<const float>>;
inline constexpr std::size_t kDistancePieces = 512;  // of kDistancePiece, whose sums wait in the workspace

// For all rules; aligned to 8 bytes.
std::size_t device_robust_workspace_bytes(std::size_t update_count);

// ---- one coordinate at a time: asynchronous, errors as robust.h's --------------------------------------------------

// `out` may be one of the updates.
Status device_coordinate_median(DeviceUpdates updates, DeviceSpan<std::byte> workspace, DeviceSpan<float> out,
                                Stream& stream);
Status device_weighted_median(DeviceUpdates updates, std::span<const std::uint32_t> weights,
                              DeviceSpan<std::byte> workspace, DeviceSpan<float> out, Stream& stream);
Status device_trimmed_mean(DeviceUpdates updates, std::size_t drop, DeviceSpan<std::byte> workspace,
                           DeviceSpan<float> out, Stream& stream);
Status device_weighted_trimmed_mean(DeviceUpdates updates, std::span<const std::uint32_t> weights, std::uint64_t drop,
                                    DeviceSpan<std::byte> workspace, DeviceSpan<float> out, Stream& stream);
Status device_bulyan_combine(DeviceUpdates chosen, std::size_t f, DeviceSpan<std::byte> workspace,
                             DeviceSpan<float> out, Stream& stream);

// ---- distances: asynchronous ---------------------------------------------------------------------------------------

// distances += those of this chunk, pair_index(i, j) of pair_count(n).
Status device_add_distances(DeviceUpdates updates, DeviceSpan<double> distances, DeviceSpan<std::byte> workspace,
                            Stream& stream);
// distances[k] += |x_k - center|^2 over this chunk; the result for coefficients is device_combine()'s.
Status device_add_center_distances(DeviceUpdates updates, std::span<const double> coefficients,
                                   DeviceSpan<double> distances, DeviceSpan<std::byte> workspace, Stream& stream);

// ---- iterated means: the host decides after each pass, so these wait for the stream --------------------------------

// As on the CPU, also for values that are not finite (kDataLoss); coefficients (on the host) for device_combine().
Result<WeiszfeldReport> device_geometric_median(DeviceUpdates updates, std::span<const std::uint32_t> weights,
                                                const WeiszfeldOptions& options, std::span<double> coefficients,
                                                DeviceSpan<std::byte> workspace, Stream& stream);
// The last of `updates` is where it starts.
Status device_centered_clipping(DeviceUpdates updates, double tau, std::size_t iterations,
                                std::span<double> coefficients, DeviceSpan<std::byte> workspace, Stream& stream);

// ---- norm clipping: asynchronous -----------------------------------------------------------------------------------

// The outcome is device_screen()'s of the result: the CPU's but for norm_squared, which is added in another order.
//
// values = fp32(fp64(values) * factor), factor 0 to 1 (checked). The workspace is device_screen_workspace_bytes().
Status device_scale_in_place(DeviceSpan<float> values, double factor, std::uint64_t first_value,
                             DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream);
// clip_norm(): values that are not all finite stay as they are, and the outcome says so. kInvalidArgument unless bound
// is finite and above 0.
Status device_clip_norm(DeviceSpan<float> values, double bound, std::uint64_t first_value,
                        DeviceSpan<std::byte> workspace, ChunkOutcome* outcome, Stream& stream);
std::size_t device_clip_workspace_bytes(std::size_t value_count);  // aligned to 8 bytes

}  // namespace fluvial::kernels
