// The arithmetic of one site's update: the workers' models averaged, taken from the base, and the residual added.
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

// Models are averaged and taken from the base; updates are averaged as they are; of both kinds together each model
// becomes an update first. Workers' integer tensors are joined by the greatest, as the coordinator joins the sites'.
// kDataLoss, naming tensor and index, when a value of the update, before the residual is added, is not finite or beyond
// the plan's value_abs_max; p is finite, and may be beyond it. Made by `gpu` when there is one (gpu_update_of()), to
// the same bits if it is one GPU.
Result<Update> make_update(const UpdateJob& job, GpuUpdate* gpu, store::SiteStore& store, Parallel& parallel);

}  // namespace fluvial::edge
