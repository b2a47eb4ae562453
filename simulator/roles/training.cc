#include "simulator/roles/training.h"

#include <algorithm>
#include <limits>
#include <utility>

#include "core/base/rng.h"

namespace fluvial::simulator {

WorkloadScenario handled(WorkloadScenario workload) {
  constexpr std::uint64_t kFewValues = 256;  // one chunk, whatever the plan says
  constexpr std::uint64_t kFewIntegers = 4;  // of each type, the narrow ones too
  if (!workload.sized) return workload;
  workload.values = std::min(workload.values, kFewValues);
  workload.integers = std::min(workload.integers, kFewIntegers);
  return workload;
}

round::Schema schema_of(const WorkloadScenario& workload) {
  std::vector<round::Tensor> tensors;
  const std::uint64_t count = std::max<std::uint64_t>(1, std::min(workload.tensors, workload.values));
  for (std::uint64_t i = 0; i < count; ++i) {
    const std::uint64_t values = workload.values / count + (i < workload.values % count ? 1 : 0);
    // Of one dimension, or of two: optimizers and codecs tell them apart.
    const std::string name = "layer" + std::to_string(i);
    const std::uint64_t rows = workload.rows != 0 ? workload.rows : values % 2 == 0 ? 2 : 0;
    if (i % 2 != 0 || rows == 0 || values < rows) {
      tensors.push_back({name, round::DType::kF32, {values}});
      continue;
    }
    tensors.push_back({name, round::DType::kF32, {rows, values / rows}});
    if (values % rows != 0) tensors.push_back({name + ".rest", round::DType::kF32, {values % rows}});
  }
  // Counters of several widths; the narrow ones fill up.
  const std::uint64_t narrow = std::min<std::uint64_t>(2, workload.integers / 2);
  if (workload.integers > 0) tensors.push_back({"steps", round::DType::kI64, {workload.integers - narrow}});
  if (narrow > 0) tensors.push_back({"epochs", round::DType::kU8, {1}});
  if (narrow > 1) tensors.push_back({"batches", round::DType::kI32, {1}});
  Result<round::Schema> schema = round::Schema::make(std::move(tensors));
  FLUVIAL_CHECK(schema.ok(), "a workload's schema");
  return std::move(*schema);
}

namespace {

struct Parts {
  std::vector<float> values;
  std::vector<std::int64_t> integers;
};

// What a counter of this type counts to.
std::int64_t greatest_of(round::DType dtype) {
  switch (dtype) {
    case round::DType::kU8: return std::numeric_limits<std::uint8_t>::max();
    case round::DType::kI32: return std::numeric_limits<std::int32_t>::max();
    default: return std::numeric_limits<std::int64_t>::max() / 2;
  }
}

Buffer join(const round::Schema& schema, const Parts& parts) {
  Buffer model(schema.model_bytes());
  const Status joined = round::join_model(schema, parts.values, parts.integers, model.span());
  FLUVIAL_CHECK(joined.ok(), "a model's parts");
  return model;
}

}  // namespace

Buffer initial_model(const round::Schema& schema, std::uint64_t seed) {
  Rng rng(seed ^ 0x6d6f64656cULL);
  Parts parts;
  for (std::uint64_t i = 0; i < schema.value_count(); ++i) {
    parts.values.push_back(static_cast<float>(rng.uniform() - 0.5));
  }
  parts.integers.resize(schema.integer_count(), 0);
  return join(schema, parts);
}

Buffer model_of(const round::Schema& schema, std::span<const float> values) {
  return join(schema, {{values.begin(), values.end()}, {}});
}

std::vector<float> values_of(const round::Schema& schema, ByteSpan model) {
  Parts parts;
  parts.values.resize(schema.value_count());
  parts.integers.resize(schema.integer_count());
  round::split_model(schema, model, parts.values, parts.integers);
  return std::move(parts.values);
}

TrainingResult trained(const round::Schema& schema, ByteSpan base, std::span<const float> local, std::uint32_t weight) {
  TrainingResult result;
  result.weight = weight;
  result.update = values_of(schema, base);
  for (std::size_t i = 0; i < local.size(); ++i) result.update[i] -= local[i];
  result.model = model_of(schema, local);
  return result;
}

TrainingResult train(const round::Schema& schema, ByteSpan base, std::uint64_t seed, SiteId site, RoundId round,
                     const WorkloadScenario& workload, std::uint64_t weight_max) {
  Rng mixed(seed ^ (std::uint64_t{site.value()} << 40) ^ (round.value() << 20));
  Rng rng(mixed.next() ^ load_le<std::uint64_t>(base.data()));
  Parts parts;
  parts.values.resize(schema.value_count());
  parts.integers.resize(schema.integer_count());
  round::split_model(schema, base, parts.values, parts.integers);
  TrainingResult result;
  result.weight = static_cast<std::uint32_t>(1 + rng.below(weight_max));
  for (float& value : parts.values) {
    const float before = value;
    value -= static_cast<float>((rng.uniform() * 2 - 1) * workload.update_scale);
    result.update.push_back(before - value);
  }
  std::size_t at = 0;
  for (std::size_t t = 0; t < schema.tensors().size(); ++t) {
    const round::DType dtype = schema.tensors()[t].dtype;
    if (round::is_averaged(dtype)) continue;
    for (const std::size_t end = at + schema.tensor_values(t); at < end; ++at) {
      parts.integers[at] = std::min(parts.integers[at] + static_cast<std::int64_t>(rng.below(5)), greatest_of(dtype));
    }
  }
  result.model = join(schema, parts);
  result.integers = std::move(parts.integers);
  return result;
}

}  // namespace fluvial::simulator
