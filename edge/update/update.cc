#include "edge/update/update.h"

#include <algorithm>
#include <cmath>
#include <cstddef>
#include <string>
#include <utility>

#include "kernels/vector.h"

namespace fluvial::edge {
namespace {

// A model's flat vector: where it lies when all of it is averaged, else cut out.
class Flat {
 public:
  static Flat of(const round::Schema& schema, ByteSpan model) {
    Flat flat;
    if (schema.all_averaged()) {
      flat.values_ = {reinterpret_cast<const float*>(model.data()), model.size() / sizeof(float)};  // NOLINT: a mapping
      return flat;
    }
    flat.cut_ = Buffer(static_cast<std::size_t>(schema.value_count()) * sizeof(float));
    flat.integers_.resize(static_cast<std::size_t>(schema.integer_count()));
    const std::span<float> into(reinterpret_cast<float*>(flat.cut_.data()),
                                flat.cut_.size() / sizeof(float));  // NOLINT
    round::split_model(schema, model, into, flat.integers_);
    flat.values_ = into;
    return flat;
  }
  std::span<const float> values() const { return values_; }
  const std::vector<std::int64_t>& integers() const { return integers_; }

 private:
  Buffer cut_;
  std::span<const float> values_;
  std::vector<std::int64_t> integers_;
};

struct Sources {
  Flat base;
  std::vector<Flat> parts;
  bool residual_zero = true;
};

Result<Sources> gather(const UpdateJob& job, store::SiteStore& store) {
  Sources sources;
  sources.base = Flat::of(job.schema, job.base);
  for (const UpdatePart& part : job.parts) sources.parts.push_back(Flat::of(job.schema, part.model));
  FLUVIAL_ASSIGN(const store::ResidualInfo residual, store.residual(job.run));
  sources.residual_zero = residual.zero;
  return sources;
}

Error unusable(const round::Schema& schema, std::uint64_t coordinate, float value, double value_abs_max) {
  const std::string what = round::value_name(schema, coordinate) + " is " + std::to_string(value);
  if (!std::isfinite(value)) return {Code::kDataLoss, what + " after training, expected a finite number"};
  return {Code::kDataLoss, what + ", beyond the plan's value_abs_max of " + std::to_string(value_abs_max)};
}

Status check_values(const round::Schema& schema, std::span<const float> p, std::uint64_t first, double value_abs_max) {
  const Result<kernels::ScreenReport> report = kernels::screen(p, first);
  if (report.ok() && static_cast<double>(report->max_abs) <= value_abs_max) return {};
  const auto bad = std::ranges::find_if(
      p, [&](float value) { return !std::isfinite(value) || std::fabs(static_cast<double>(value)) > value_abs_max; });
  FLUVIAL_CHECK(bad != p.end(), "the screen refused what is within its bounds");
  return unusable(schema, first + static_cast<std::uint64_t>(bad - p.begin()), *bad, value_abs_max);
}

struct ChunkTask {
  store::SiteStore& store;
  const UpdateJob& job;
  const Sources& sources;
  kernels::ChunkLayout layout;
  std::span<float> update;

  Status run(std::size_t index) const {
    const std::span<float> p = layout.of(update, index);
    std::span<const float> local = layout.of(sources.parts.front().values(), index);
    if (sources.parts.size() > 1) {
      std::vector<std::span<const float>> vectors;
      std::vector<std::uint32_t> weights;
      for (std::size_t k = 0; k < sources.parts.size(); ++k) {
        vectors.push_back(layout.of(sources.parts[k].values(), index));
        weights.push_back(job.parts[k].weight);
      }
      FLUVIAL_TRY(kernels::weighted_mean(vectors, weights, p));
      local = p;
    }
    std::vector<float> residual;
    const std::uint64_t first = layout.first_value(index);
    if (!sources.residual_zero) {
      residual.resize(p.size());
      FLUVIAL_TRY(store.read_residual(job.run, first, residual));
    }
    kernels::pseudo_gradient(layout.of(sources.base.values(), index), local, residual, p);
    return check_values(job.schema, p, first, job.plan.value_abs_max);
  }
};

}  // namespace

Result<Update> make_update(const UpdateJob& job, store::SiteStore& store, Parallel& parallel) {
  FLUVIAL_ASSIGN(const Sources sources, gather(job, store));
  const kernels::ChunkLayout layout = job.layout();
  Update update;
  update.p = Buffer(static_cast<std::size_t>(layout.value_count) * sizeof(float));
  const ChunkTask task{store, job, sources, layout, update.values()};
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&task](std::size_t i) { return task.run(i); }));
  update.integers = sources.parts.front().integers();
  for (const Flat& part : sources.parts) {
    for (std::size_t i = 0; i < update.integers.size(); ++i) {
      update.integers[i] = std::max(update.integers[i], part.integers()[i]);
    }
  }
  return update;
}

}  // namespace fluvial::edge
