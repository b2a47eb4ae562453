// The route of an update whose parts are all on GPUs: summed, screened and encoded there (edge/gpu), with the same
// outcome as on the host.
#pragma once

#include <functional>
#include <memory>

#include "core/base/parallel.h"
#include "core/store/site_store.h"
#include "edge/gpu/gpu_update.h"
#include "edge/update/job.h"

namespace fluvial::edge {

// Whether GPUs can add up these parts: all on GPUs, all models or all updates, and not more than can be added.
bool lie_on_gpus(const round::Schema& schema, const std::vector<PartView>& parts);
Result<std::unique_ptr<GpuUpdate>> gpu_update_of(SiteGpus& gpus, const std::vector<PartView>& parts,
                                                 kernels::ChunkLayout layout);

// Null when the host must make this update. Uses up the early reduction.
Result<std::unique_ptr<GpuUpdate>> gpu_update_of(const UpdateJob& job);

// Chunks of p as make_update() has them, screened, in order, one at a time. The greatest magnitude in p.
using LeaveP = std::function<Status(std::size_t chunk_index, std::span<const float> p)>;
Result<float> make_p(GpuUpdate& gpu, const UpdateJob& job, const store::Residual& residual, Parallel& parallel,
                     const LeaveP& leave);

}  // namespace fluvial::edge
