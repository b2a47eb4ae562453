#include "edge/update/gpu_route.h"

#include <algorithm>
#include <string>
#include <utility>
#include <vector>

#include "edge/update/part_values.h"
#include "edge/update/partial_mean.h"
#include "edge/update/screen.h"
#include "kernels/reduce.h"

namespace fluvial::edge {

bool lie_on_gpus(const round::Schema& schema, const std::vector<PartView>& parts) {
  return schema.value_count() > 0 && parts.size() <= kernels::kReduceInputsMax &&
         std::ranges::all_of(parts,
                             [&](const PartView& part) { return part.gpu && part.update == parts.front().update; });
}

Result<std::unique_ptr<GpuUpdate>> gpu_update_of(SiteGpus& gpus, const std::vector<PartView>& parts,
                                                 kernels::ChunkLayout layout) {
  std::vector<GpuPart> there;
  for (const PartView& part : parts) there.push_back({part.gpu, part.weight});
  return GpuUpdate::make(gpus, std::move(there), layout);
}

Result<std::unique_ptr<GpuUpdate>> gpu_update_of(const UpdateJob& job) {
  if (job.gpus == nullptr || !lie_on_gpus(job.schema, job.parts)) return std::unique_ptr<GpuUpdate>();
  if (job.early != nullptr) {
    if (std::unique_ptr<GpuUpdate> early = job.early->take_gpu()) return early;
  }
  return gpu_update_of(*job.gpus, job.parts, job.layout());
}

namespace {

// The update in a chunk of p is unusable. To name the value, the update is computed from p again.
Status name_value(const UpdateJob& job, const store::Residual& residual, std::uint64_t first,
                  std::span<const float> p) {
  std::vector<float> update(p.begin(), p.end());
  if (!residual.info().zero) {
    std::vector<float> values(p.size());
    FLUVIAL_TRY(read_usable_residual(residual, first, values));
    for (std::size_t i = 0; i < p.size(); ++i) update[i] -= values[i];
  }
  FLUVIAL_TRY(check_values(job.schema, update, first, job.plan.value_abs_max));
  // Up to rounding the value is at the bound.
  return Error{Code::kDataLoss,
               "a value of the update is beyond the plan's value_abs_max of " + std::to_string(job.plan.value_abs_max)};
}

}  // namespace

Result<float> make_p(GpuUpdate& gpu, const UpdateJob& job, const store::Residual& residual, Parallel& parallel,
                     const LeaveP& leave) {
  const kernels::ChunkLayout layout = job.layout();
  GpuUpdate::From from;
  PartValues base;
  std::vector<float> scratch;
  if (!job.parts.front().update) {
    FLUVIAL_ASSIGN(base, PartValues::of(job.schema, {.model = job.base}));
    from.base = [&](std::uint64_t first, std::span<float> into) -> Status {
      FLUVIAL_ASSIGN(const std::span<const float> values, base.read(first, into.size(), scratch));
      std::ranges::copy(values, into.begin());
      return {};
    };
  }
  if (!residual.info().zero) {
    from.residual = [&](std::uint64_t first, std::span<float> into) -> Status {
      FLUVIAL_ASSIGN(const std::uint64_t lost, read_usable_residual(residual, first, into));
      if (job.residual_lost != nullptr) *job.residual_lost += lost;
      return {};
    };
  }
  float max_abs = 0;
  const auto screened = [&](std::size_t chunk, std::span<const float> p, const GpuUpdate::Screened& found) -> Status {
    if (!found.update.ok() || static_cast<double>(found.update->max_abs) > job.plan.value_abs_max) {
      return name_value(job, residual, layout.first_value(chunk), p);
    }
    FLUVIAL_ASSIGN(const kernels::ScreenReport of_p, found.p);
    max_abs = std::max(max_abs, of_p.max_abs);
    return leave(chunk, p);
  };
  FLUVIAL_TRY(gpu.make_p(from, screened, parallel));
  return max_abs;
}

}  // namespace fluvial::edge
