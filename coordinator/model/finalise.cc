#include "coordinator/model/finalise.h"

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <cstring>
#include <limits>
#include <numeric>
#include <utility>

#include "core/base/in_turn.h"
#include "core/digest/model_digest.h"
#include "core/digest/sha256.h"
#include "kernels/vector.h"

namespace fluvial::coordinator {
namespace {

// The flat fp32 vector and the integers of the model that is being made.
struct Workspace {
  SharedBytes model;            // the result
  MutableByteSpan room;         // its memory
  std::span<float> values;      // inside `model` when every tensor is averaged, else `separate_values`
  std::span<const float> base;  // of the values; empty: they are the base's before their step
  std::vector<float> separate_values;
  std::vector<std::int64_t> integers;
};

Workspace open_workspace(const round::Schema& schema, ByteSpan base) {
  Workspace work;
  const auto memory = std::make_shared<Buffer>(schema.model_bytes());
  work.room = memory->span();
  work.model = {memory, memory->span()};
  if (schema.all_averaged()) {
    FLUVIAL_CHECK(
        base.size() == work.room.size() && reinterpret_cast<std::uintptr_t>(base.data()) % alignof(float) == 0,
        "a base that is no flat vector");
    work.values = {reinterpret_cast<float*>(work.room.data()), schema.value_count()};
    work.base = {reinterpret_cast<const float*>(base.data()), schema.value_count()};
    return work;
  }
  work.separate_values.resize(schema.value_count());
  work.integers.resize(schema.integer_count());
  round::split_model(schema, base, work.separate_values, work.integers);
  work.values = work.separate_values;
  return work;
}

// Where a step may be cut anywhere, a core goes from the sum to the next model in cuts that stay in its own cache, and
// on to the file in tasks of several. Else both are the plan's chunks.
constexpr std::uint64_t kCutValues = 8 * 1024;
constexpr std::uint64_t kCutsOfATask = 8;

// The mean update, cut by cut: of the sum, or of what the passes hold.
class Means {
 public:
  static Result<Means> of(Parallel& parallel, const transfer::NodeSum& sum, const FinaliseInput& input) {
    Means means(sum, input);
    if (!input.passes) {
      if (!aggregate::ServerStep::may_be_cut_anywhere(input.optimizer)) return means;
      means.layout_.chunk_values = std::min(means.layout_.chunk_values, kCutValues);
      means.cuts_of_a_task_ = kCutsOfATask;
      return means;
    }
    FLUVIAL_ASSIGN(SharedBytes last, mean_bytes(parallel, sum, input.record.contributors.total_weight(), {}));
    FLUVIAL_ASSIGN(means.of_passes_,
                   MeanUpdate::make(*input.passes, *input.schema, sum.shape().layout.chunk_values, std::move(last)));
    means.layout_ = means.of_passes_->layout();
    return means;
  }

  const kernels::ChunkLayout& layout() const { return layout_; }
  std::size_t cuts_of_a_task() const { return cuts_of_a_task_; }
  const MeanUpdate* of_passes() const { return of_passes_.get(); }  // null: there is one pass
  // `out` is as long as the cut.
  Status of_cut(std::size_t index, std::span<float> out) const {
    if (of_passes_) return of_passes_->chunk(index, out);
    return sum_->accumulator().mean(layout_.first_value(index), input_->divisor.value, out, input_->divisor.bits);
  }

 private:
  Means(const transfer::NodeSum& sum, const FinaliseInput& input)
      : sum_(&sum), input_(&input), layout_(sum.shape().layout) {}
  const transfer::NodeSum* sum_;
  const FinaliseInput* input_;
  kernels::ChunkLayout layout_;  // of the cuts
  std::size_t cuts_of_a_task_ = 1;
  std::unique_ptr<MeanUpdate> of_passes_;
};

// Memory for a task. What a thread kept for the next one would grow with the cores.
struct Scratch {
  Values<float> mean;
  Values<float> change;
};

// Mean and optimizer, of one cut. Returns the squared 2-norm of the step.
Result<double> step_cut(const Means& means, const aggregate::ServerStep& step, std::span<float> state,
                        MutableByteSpan handed, const Workspace& work, Scratch& scratch, std::size_t index) {
  const kernels::ChunkLayout& layout = means.layout();
  const std::span<float> model = layout.of(work.values, index);
  const std::span<float> mean = scratch.mean.span().first(model.size());
  const std::span<float> change = scratch.change.span().first(model.size());
  FLUVIAL_TRY(means.of_cut(index, mean));
  std::span<const float> before = change;
  if (work.base.empty()) {
    std::ranges::copy(model, change.begin());
  } else {
    before = layout.of(work.base, index);
    std::ranges::copy(before, model.begin());
  }
  FLUVIAL_TRY(step.apply(index, mean, state, model, handed));
  if (const auto screened = kernels::screen(model, layout.first_value(index)); !screened.ok()) {
    return Error{Code::kDataLoss, "the next model would not be finite: " + screened.error().message};
  }
  kernels::pseudo_gradient(before, model, {}, change);
  const auto changed = kernels::screen(change);  // of two finite models it may still not be finite
  return changed.ok() ? changed->norm_squared : std::numeric_limits<double>::infinity();
}

// Of the cuts of one task, one after the other.
Result<double> step_task(const Means& means, const aggregate::ServerStep& step, std::span<float> state,
                         MutableByteSpan handed, const Workspace& work, std::size_t task) {
  const kernels::ChunkLayout& cuts = means.layout();
  const std::size_t first = task * means.cuts_of_a_task();
  const std::size_t end = std::min(first + means.cuts_of_a_task(), cuts.chunk_count());
  Scratch scratch{Values<float>(cuts.size(first)), Values<float>(cuts.size(first))};
  double squares = 0;
  for (std::size_t cut = first; cut < end; ++cut) {
    FLUVIAL_ASSIGN(const double of_cut, step_cut(means, step, state, handed, work, scratch, cut));
    squares += of_cut;
  }
  return squares;
}

// Makes the next model's bytes, digests them and writes them. Where every tensor is averaged, all of it goes on at
// once, task by task, and the tree digest, which waits for no task's turn, is there first. `all_there`: with it.
Status make_bytes(Parallel& parallel, const transfer::NodeSum& sum, const Means& means, const FinaliseInput& input,
                  const aggregate::ServerStep& step, MutableByteSpan handed, Workspace& work,
                  store::ModelWriter& writer, const std::function<void(const Digest& tree)>& all_there,
                  NextModel& next) {
  const kernels::ChunkLayout& cuts = means.layout();
  const kernels::ChunkLayout tasks{cuts.value_count, cuts.chunk_values * means.cuts_of_a_task()};
  const std::size_t count = tasks.chunk_count();
  const auto bytes_of = [&](std::size_t i) { return std::as_bytes(tasks.of(std::span<const float>(work.values), i)); };
  Sha256 hash;
  InTurn digesting(count, [&](std::size_t i) -> Status {
    hash.update(bytes_of(i));
    return {};
  });
  InTurn writing(count, [&](std::size_t i) { return writer.write(tasks.first_value(i) * sizeof(float), bytes_of(i)); });
  ModelDigest tree(work.room.size());
  const bool at_once = !work.base.empty();
  std::vector<double> squares(count);
  const std::size_t first = input.sum_digest ? 1 : 0;  // a long task: before the others
  FLUVIAL_TRY(parallel.for_each(first + count, [&](std::size_t task) -> Status {
    if (task < first) {
      next.sum_digest = sha256(std::as_bytes(sum.accumulator().sum()));
      return {};
    }
    const std::size_t i = task - first;
    FLUVIAL_ASSIGN(squares[i], step_task(means, step, next.optimizer_state, handed, work, i));
    if (!at_once) return {};
    if (tree.ready(work.room, tasks.first_value(i) * sizeof(float), bytes_of(i).size())) all_there(tree.finish());
    FLUVIAL_TRY(digesting.done(i));
    return writing.done(i);
  }));
  next.step_norm = std::sqrt(std::accumulate(squares.begin(), squares.end(), 0.0));
  if (at_once) {
    next.master = hash.finish();
    return {};
  }
  const std::span<const std::int64_t> greatest = sum.integers();
  for (std::size_t i = 0; i < work.integers.size(); ++i) work.integers[i] = std::max(work.integers[i], greatest[i]);
  FLUVIAL_TRY(round::join_model(*input.schema, work.separate_values, work.integers, work.room));
  FLUVIAL_ASSIGN(const Digest digest, model_tree_digest(parallel, work.room));
  all_there(digest);
  FLUVIAL_TRY(writer.write(0, work.room));
  next.master = sha256(work.room);
  return {};
}

}  // namespace

Result<NextModel> finalise(Parallel& parallel, const transfer::NodeSum& sum, store::ModelStore& models,
                           FinaliseInput input) {
  FLUVIAL_TRY(sum.check_probes(input.record.contributors));
  const round::Schema& schema = *input.schema;
  Workspace work = open_workspace(schema, input.base.bytes);
  NextModel next;
  const bool is_first = input.optimizer_state == nullptr || input.optimizer_state->empty();
  next.optimizer_state =
      is_first ? aggregate::initial_state(input.optimizer, schema.value_count()) : *input.optimizer_state;

  FLUVIAL_ASSIGN(const Means means, Means::of(parallel, sum, input));
  if (means.of_passes() != nullptr) {
    FLUVIAL_ASSIGN(next.codec_state, means.of_passes()->next_state());
  }
  const kernels::ChunkLayout& layout = means.layout();
  aggregate::ServerStep step(input.optimizer, layout, aggregate::layers_of(schema, input.optimizer),
                             input.record.round.value(), input.record.contributors.total_weight(), input.codec);
  Buffer handed(step.handed_bytes());
  if (step.has_norms()) {
    FLUVIAL_TRY(parallel.for_each(layout.chunk_count(), [&](std::size_t i) -> Status {
      Values<float> mean(layout.size(i));
      FLUVIAL_TRY(means.of_cut(i, mean.span()));
      return step.measure(i, mean.span(), next.optimizer_state,
                          layout.of(work.base.empty() ? std::span<const float>(work.values) : work.base, i));
    }));
    step.close();
  }
  const round::ModelKey key{input.record.run, ModelVersion(input.record.round.value())};
  FLUVIAL_ASSIGN(store::ModelWriter writer, models.begin(key, schema));
  Master master{key, {}, work.model};
  const bool is_trained_from = input.down.down.kind == aggregate::Down::Kind::kWhole;
  const auto all_there = [&](const Digest& tree) {
    master.tree = tree;
    const round::ModelRef unnamed{key.run, key.version, tree, schema.model_bytes()};
    if (is_trained_from && input.ahead) input.ahead({unnamed, master.bytes, {}, {}, 0, tree});
  };
  FLUVIAL_TRY(make_bytes(parallel, sum, means, input, step, handed.span(), work, writer, all_there, next));
  if (handed.size() > 0) next.codec_state = named(SharedBytes::from(std::move(handed)));
  master.digest = next.master;
  next.bytes = master.bytes;
  FLUVIAL_ASSIGN(next.trained, make_trained(parallel, input.down, schema, master, input.trained_before,
                                            is_trained_from ? Ahead() : input.ahead));
  // Where it is the master rounded it is made of that again.
  std::optional<store::TrainedFile> own_file;
  if (input.down.down.kind == aggregate::Down::Kind::kDelta && next.trained.ref.digest != next.master) {
    own_file = store::TrainedFile{next.trained.bytes.bytes, next.trained.ref.digest};
  }
  if (input.writing) input.writing();
  FLUVIAL_ASSIGN(next.optimizer_file, models.keep(std::move(writer), next.master, next.optimizer_state, own_file,
                                                  next.codec_state ? next.codec_state->bytes.bytes : ByteSpan()));
  return next;
}

}  // namespace fluvial::coordinator
