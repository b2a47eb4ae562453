#include "coordinator/model/finalise.h"

#include <algorithm>
#include <cmath>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/digest/sha256.h"
#include "kernels/vector.h"

namespace fluvial::coordinator {
namespace {

// The flat fp32 vector and the integers of the model that is being made.
struct Workspace {
  Buffer model;             // the result
  std::span<float> values;  // inside `model` when every tensor is averaged, else `separate_values`
  std::vector<float> separate_values;
  std::vector<std::int64_t> integers;
};

Workspace open_workspace(const round::Schema& schema, ByteSpan base) {
  Workspace work;
  work.model = Buffer(schema.model_bytes());
  if (schema.all_averaged()) {
    std::memcpy(work.model.data(), base.data(), base.size());
    work.values = {reinterpret_cast<float*>(work.model.data()), schema.value_count()};
    return work;
  }
  work.separate_values.resize(schema.value_count());
  work.integers.resize(schema.integer_count());
  round::split_model(schema, base, work.separate_values, work.integers);
  work.values = work.separate_values;
  return work;
}

// The mean of one chunk, in memory of this thread.
Result<std::span<const float>> mean_of(const transfer::NodeSum& sum, const FinaliseInput& input, std::size_t index) {
  thread_local std::vector<float> mean;
  mean.resize(sum.shape().layout.size(index));
  FLUVIAL_TRY(sum.accumulator().mean_chunk(index, input.record.contributors.total_weight(), mean));
  return std::span<const float>(mean);
}

// Mean and optimizer, chunk by chunk, on every core. Returns the squared 2-norm of the step.
Result<double> step_chunk(const transfer::NodeSum& sum, const FinaliseInput& input, const aggregate::ServerStep& step,
                          std::span<float> state, std::span<float> values, std::size_t index) {
  FLUVIAL_ASSIGN(const std::span<const float> mean, mean_of(sum, input, index));
  const kernels::ChunkLayout& layout = sum.shape().layout;
  const std::span<float> model = layout.of(values, index);
  thread_local std::vector<float> before;
  before.assign(model.begin(), model.end());
  FLUVIAL_TRY(step.apply(index, mean, state, model));
  if (const auto screened = kernels::screen(model, layout.first_value(index)); !screened.ok()) {
    return Error{Code::kDataLoss, "the next model would not be finite: " + screened.error().message};
  }
  kernels::pseudo_gradient(before, model, {}, before);
  const auto change = kernels::screen(before);  // of two finite models it may still not be finite
  return change.ok() ? change->norm_squared : std::numeric_limits<double>::infinity();
}

}  // namespace

Result<NextModel> finalise(Parallel& parallel, const transfer::NodeSum& sum, store::ModelStore& models,
                           FinaliseInput input) {
  FLUVIAL_TRY(sum.check_probes(input.record.contributors));
  const round::Schema& schema = *input.schema;
  Workspace work = open_workspace(schema, input.base.bytes);
  NextModel next;
  next.optimizer_state = input.optimizer_state.empty()  // before the first round
                             ? aggregate::initial_state(input.optimizer, schema.value_count())
                             : std::move(input.optimizer_state);

  const kernels::ChunkLayout& layout = sum.shape().layout;
  aggregate::ServerStep step(input.optimizer, layout, aggregate::layers_of(schema), input.record.round.value(),
                             input.record.contributors.total_weight());
  if (step.has_norms()) {
    FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
      FLUVIAL_ASSIGN(const std::span<const float> mean, mean_of(sum, input, i));
      return step.measure(i, mean, next.optimizer_state, layout.of(std::span<const float>(work.values), i));
    }));
    step.close();
  }
  std::vector<double> squares(layout.chunk_count());
  FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
    FLUVIAL_ASSIGN(squares[i], step_chunk(sum, input, step, next.optimizer_state, work.values, i));
    return {};
  }));
  next.step_norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  if (!schema.all_averaged()) {
    const std::span<const std::int64_t> greatest = sum.integers();
    for (std::size_t i = 0; i < work.integers.size(); ++i) work.integers[i] = std::max(work.integers[i], greatest[i]);
    FLUVIAL_TRY(round::join_model(schema, work.separate_values, work.integers, work.model.span()));
  }
  next.bytes = SharedBytes::from(std::move(work.model));
  // Two digests, side by side where there are two cores.
  FLUVIAL_TRY(parallel.for_each(input.sum_digest ? 2 : 1, [&](std::size_t i) -> Status {
    if (i == 0) next.ref.digest = sha256(next.bytes.bytes);
    if (i == 1) next.sum_digest = sha256(std::as_bytes(sum.accumulator().sum()));
    return {};
  }));
  next.ref = {input.record.run, ModelVersion(input.record.round.value()), next.ref.digest, schema.model_bytes()};
  if (input.writing) input.writing();
  FLUVIAL_ASSIGN(next.optimizer_file, models.put({next.ref.run, next.ref.version}, schema, next.bytes.bytes,
                                                 next.ref.digest, next.optimizer_state));
  return next;
}

}  // namespace fluvial::coordinator
