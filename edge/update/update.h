// The arithmetic of one site's update: the workers' models averaged, subtracted from the base, and the residual added.
#pragma once

#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/store/site_store.h"
#include "edge/update/job.h"

namespace fluvial::edge {

class GpuUpdate;

struct Update {
  Buffer p;  // schema.value_count() fp32 values
  std::vector<std::int64_t> integers;
  float max_abs = 0;  // of p

  std::span<float> values() { return {reinterpret_cast<float*>(p.data()), p.size() / sizeof(float)}; }  // NOLINT
};

// Models are averaged and subtracted from the base; updates are averaged as they are; if there are both, each model
// becomes an update first. The greatest of the workers' integers is taken, as the coordinator does with the sites'.
// kDataLoss, naming tensor and index, when a value of the update, before the residual is added, is not finite or beyond
// the plan's value_abs_max; p is finite, and may be beyond it. `gpu` (gpu_update_of()), if given, makes the update,
// with the same bits if it is one GPU.
Result<Update> make_update(const UpdateJob& job, GpuUpdate* gpu, store::SiteStore& store, Parallel& parallel);

}  // namespace fluvial::edge
