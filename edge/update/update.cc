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

struct HostUpdate::Sources {
  PartValues base;
  std::vector<PartValues> parts;
  bool all_updates = true;
  bool all_models = true;
  store::Residual residual;
};

Result<std::unique_ptr<HostUpdate>> HostUpdate::of(const UpdateJob& job, store::Residual residual) {
  auto sources = std::make_unique<Sources>();
  FLUVIAL_ASSIGN(sources->base, PartValues::of(job.schema, {.model = job.base}));
  FLUVIAL_ASSIGN(sources->parts, values_of(job.schema, job.parts));
  for (const PartView& part : job.parts) (part.update ? sources->all_models : sources->all_updates) = false;
  sources->residual = std::move(residual);
  return std::unique_ptr<HostUpdate>(new HostUpdate(job, std::move(sources)));
}

HostUpdate::HostUpdate(const UpdateJob& job, std::unique_ptr<Sources> sources)
    : job_(job), sources_(std::move(sources)), layout_(job.layout()), max_abs_(layout_.chunk_count()) {
  if (job.early != nullptr) update_.p = job.early->take();
  if (update_.p.empty()) update_.p = Buffer(static_cast<std::size_t>(layout_.value_count) * sizeof(float));
  update_.integers = joined_integers(sources_->parts);
}
HostUpdate::~HostUpdate() = default;

// Only mean() and mean_update() read the workers' memory, each value once: the screen and the codec read p.
Result<float> HostUpdate::make(std::size_t chunk) {
  const std::span<float> p = layout_.of(update_.values(), chunk);
  const std::uint64_t first = layout_.first_value(chunk);
  if (sources_->all_models) {
    std::vector<float> base, local;
    FLUVIAL_ASSIGN(const std::span<const float> mean, this->mean(chunk, p, local));
    FLUVIAL_ASSIGN(const std::span<const float> from, sources_->base.read(first, p.size(), base));
    kernels::pseudo_gradient(from, mean, {}, p);
  } else if (sources_->all_updates) {
    std::vector<float> handed_over;
    FLUVIAL_ASSIGN(const std::span<const float> mean, this->mean(chunk, p, handed_over));
    kernels::add_residual(mean, {}, p);
  } else {
    FLUVIAL_TRY(mean_update(chunk, p));
    kernels::add_residual(p, {}, p);
  }
  FLUVIAL_ASSIGN(max_abs_[chunk], check_values(job_.schema, p, first, job_.plan.value_abs_max));
  if (!sources_->residual.info().zero) {
    FLUVIAL_ASSIGN(max_abs_[chunk], add_residual(chunk, p));
  }
  return max_abs_[chunk];
}

Result<float> HostUpdate::add_residual(std::size_t chunk, std::span<float> p) const {
  const std::uint64_t first = layout_.first_value(chunk);
  Values<float> memory(p.size());
  const std::span<float> residual = memory.span();
  FLUVIAL_ASSIGN(const std::uint64_t lost, read_usable_residual(sources_->residual, first, residual));
  if (job_.residual_lost != nullptr) *job_.residual_lost += lost;
  kernels::add_residual(p, residual, p);
  FLUVIAL_ASSIGN(const kernels::ScreenReport report, kernels::screen(p, first));
  return report.max_abs;
}

// The mean of results of one kind: the only result itself, else in p, where an early reduction may have left it.
Result<std::span<const float>> HostUpdate::mean(std::size_t chunk, std::span<float> p,
                                                std::vector<float>& scratch) const {
  const std::vector<PartValues>& parts = sources_->parts;
  if (job_.early != nullptr && job_.early->has(chunk)) return std::span<const float>(p);
  if (parts.size() == 1) return parts.front().read(layout_.first_value(chunk), p.size(), scratch);
  FLUVIAL_TRY(mean_of_chunk(parts, job_.parts, layout_, chunk, job_.reduction, p));
  return std::span<const float>(p);
}

// The mean of models and updates together: each model becomes an update first.
Status HostUpdate::mean_update(std::size_t chunk, std::span<float> p) const {
  const std::uint64_t first = layout_.first_value(chunk);
  std::vector<float> base, local;
  FLUVIAL_ASSIGN(const std::span<const float> from, sources_->base.read(first, p.size(), base));
  std::vector<std::vector<float>> updates(job_.parts.size());
  std::vector<std::span<const float>> vectors;
  std::vector<std::uint32_t> weights;
  for (std::size_t k = 0; k < job_.parts.size(); ++k) {
    FLUVIAL_ASSIGN(const std::span<const float> values, sources_->parts[k].read(first, p.size(), local));
    updates[k].resize(p.size());
    if (job_.parts[k].update) {
      std::ranges::copy(values, updates[k].begin());
    } else {
      kernels::pseudo_gradient(from, values, {}, updates[k]);
    }
    vectors.emplace_back(updates[k]);
    weights.push_back(job_.parts[k].weight);
  }
  return reduce_mean(job_.reduction, vectors, weights, p);
}

float HostUpdate::max_abs() const {
  float most = 0;
  for (const float of_chunk : max_abs_) most = std::max(most, of_chunk);
  return most;
}

Update HostUpdate::take() {
  update_.max_abs = max_abs();
  return std::move(update_);
}

namespace {

Result<Update> make_on_host(const UpdateJob& job, const store::Residual& residual, Parallel& parallel) {
  FLUVIAL_ASSIGN(const std::unique_ptr<HostUpdate> update, HostUpdate::of(job, residual));
  FLUVIAL_TRY(parallel.for_each(job.layout().chunk_count(), [&](std::size_t i) -> Status {
    const Result<float> made = update->make(i);
    return made.ok() ? Status() : Status(made.error());
  }));
  return update->take();
}

}  // namespace

Result<Update> make_update(const UpdateJob& job, GpuUpdate* gpu, const store::Residual& residual, Parallel& parallel) {
  if (gpu == nullptr) return make_on_host(job, residual, parallel);
  const kernels::ChunkLayout layout = job.layout();
  Update update{.p = Buffer(static_cast<std::size_t>(layout.value_count) * sizeof(float))};
  const auto copy = [&](std::size_t chunk, std::span<const float> p) -> Status {
    std::ranges::copy(p, layout.of(update.values(), chunk).begin());
    return {};
  };
  FLUVIAL_ASSIGN(update.max_abs, make_p(*gpu, job, residual, parallel, copy));
  FLUVIAL_ASSIGN(const std::vector<PartValues> parts, values_of(job.schema, job.parts));
  update.integers = joined_integers(parts);
  return update;
}

}  // namespace fluvial::edge
