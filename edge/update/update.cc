#include "edge/update/update.h"

#include <algorithm>
#include <cstddef>
#include <utility>

#include "edge/reduce/reduce.h"
#include "edge/update/gpu_route.h"
#include "edge/update/part_values.h"
#include "edge/update/partial_mean.h"
#include "edge/update/screen.h"
#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

struct Sources {
  PartValues base;
  std::vector<PartValues> parts;
  bool all_updates = true;
  bool all_models = true;
  bool residual_zero = true;
};

Result<Sources> gather(const UpdateJob& job, store::SiteStore& store) {
  Sources sources;
  FLUVIAL_ASSIGN(sources.base, PartValues::of(job.schema, {.model = job.base}));
  FLUVIAL_ASSIGN(sources.parts, values_of(job.schema, job.parts));
  for (const PartView& part : job.parts) (part.update ? sources.all_models : sources.all_updates) = false;
  FLUVIAL_ASSIGN(const store::ResidualInfo residual, store.residual(job.run));
  sources.residual_zero = residual.zero;
  return sources;
}

struct ChunkTask {
  store::SiteStore& store;
  const UpdateJob& job;
  const Sources& sources;
  kernels::ChunkLayout layout;
  std::span<float> update;
  std::span<float> max_abs;  // of p, by chunk

  Status run(std::size_t index) const {
    const std::span<float> p = layout.of(update, index);
    const std::uint64_t first = layout.first_value(index);
    // From here on only mean() and mean_update() read the workers' memory, each value once: the screen and the codec
    // read p.
    if (sources.all_models) {
      std::vector<float> base, local;
      FLUVIAL_ASSIGN(const std::span<const float> mean, this->mean(index, p, local));
      FLUVIAL_ASSIGN(const std::span<const float> from, sources.base.read(first, p.size(), base));
      kernels::pseudo_gradient(from, mean, {}, p);
    } else if (sources.all_updates) {
      std::vector<float> handed_over;
      FLUVIAL_ASSIGN(const std::span<const float> mean, this->mean(index, p, handed_over));
      kernels::add_residual(mean, {}, p);
    } else {
      FLUVIAL_TRY(mean_update(index, p));
      kernels::add_residual(p, {}, p);
    }
    FLUVIAL_ASSIGN(max_abs[index], check_values(job.schema, p, first, job.plan.value_abs_max));
    return sources.residual_zero ? Status() : add_residual(index, p);
  }

 private:
  Status add_residual(std::size_t index, std::span<float> p) const {
    const std::uint64_t first = layout.first_value(index);
    Values<float> memory(p.size());
    const std::span<float> residual = memory.span();
    FLUVIAL_ASSIGN(const std::uint64_t lost, read_usable_residual(store, job.run, first, residual));
    if (job.residual_lost != nullptr) *job.residual_lost += lost;
    kernels::add_residual(p, residual, p);
    FLUVIAL_ASSIGN(const kernels::ScreenReport report, kernels::screen(p, first));
    max_abs[index] = report.max_abs;
    return {};
  }
  // The mean of results of one kind: the only result itself, else in p, where an early reduction may have left it.
  Result<std::span<const float>> mean(std::size_t index, std::span<float> p, std::vector<float>& scratch) const {
    if (job.early != nullptr && job.early->has(index)) return std::span<const float>(p);
    if (sources.parts.size() == 1) return sources.parts.front().read(layout.first_value(index), p.size(), scratch);
    FLUVIAL_TRY(mean_of_chunk(sources.parts, job.parts, layout, index, job.reduction, p));
    return std::span<const float>(p);
  }
  // The mean of models and updates together: each model becomes an update first.
  Status mean_update(std::size_t index, std::span<float> p) const {
    const std::uint64_t first = layout.first_value(index);
    std::vector<float> base, local;
    FLUVIAL_ASSIGN(const std::span<const float> from, sources.base.read(first, p.size(), base));
    std::vector<std::vector<float>> updates(job.parts.size());
    std::vector<std::span<const float>> vectors;
    std::vector<std::uint32_t> weights;
    for (std::size_t k = 0; k < job.parts.size(); ++k) {
      FLUVIAL_ASSIGN(const std::span<const float> values, sources.parts[k].read(first, p.size(), local));
      updates[k].resize(p.size());
      if (job.parts[k].update) {
        std::ranges::copy(values, updates[k].begin());
      } else {
        kernels::pseudo_gradient(from, values, {}, updates[k]);
      }
      vectors.emplace_back(updates[k]);
      weights.push_back(job.parts[k].weight);
    }
    return reduce_mean(job.reduction, vectors, weights, p);
  }
};

Result<Update> make_on_host(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const Sources sources, gather(job, store));
  const kernels::ChunkLayout layout = job.layout();
  Update update;
  if (job.early != nullptr) update.p = job.early->take();
  if (update.p.empty()) update.p = Buffer(static_cast<std::size_t>(layout.value_count) * sizeof(float));
  std::vector<float> max_abs(layout.chunk_count());
  const ChunkTask task{store, job, sources, layout, update.values(), max_abs};
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&task](std::size_t i) { return task.run(i); }));
  for (const float of_chunk : max_abs) update.max_abs = std::max(update.max_abs, of_chunk);
  update.integers = joined_integers(sources.parts);
  return update;
}

}  // namespace

Result<Update> make_update(const UpdateJob& job, GpuUpdate* gpu, store::SiteStore& store, Parallel& parallel) {
  if (gpu == nullptr) return make_on_host(job, store, parallel);
  const kernels::ChunkLayout layout = job.layout();
  Update update{.p = Buffer(static_cast<std::size_t>(layout.value_count) * sizeof(float)), .integers = {}};
  const auto copy = [&](std::size_t chunk, std::span<const float> p) -> Status {
    std::ranges::copy(p, layout.of(update.values(), chunk).begin());
    return {};
  };
  FLUVIAL_ASSIGN(update.max_abs, make_p(*gpu, job, store, parallel, copy));
  FLUVIAL_ASSIGN(const std::vector<PartValues> parts, values_of(job.schema, job.parts));
  update.integers = joined_integers(parts);
  return update;
}

}  // namespace fluvial::edge
