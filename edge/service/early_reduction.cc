#include "edge/service/early_reduction.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/pool_parallel.h"

namespace fluvial::edge {

struct EarlyReduction::State {
  State(HeldModel from, std::uint64_t chunk_values, Algorithm reduction, SiteGpus* gpus)
      : base(std::move(from)),
        mean(std::make_shared<PartialMean>(kernels::ChunkLayout{base.schema.value_count(), chunk_values}, reduction,
                                           gpus)) {}

  HeldModel base;
  std::vector<TrainedPart> parts;
  round::ByteRanges ready;
  round::ByteRanges reduced;
  std::shared_ptr<PartialMean> mean;
  bool running = false;
};

EarlyReduction::EarlyReduction(tree::Runtime& runtime, net::TaskGroup& tasks, std::shared_ptr<SiteGpus> gpus,
                               Events events)
    : runtime_(runtime), tasks_(tasks), gpus_(std::move(gpus)), events_(std::move(events)), rested_(runtime.strand) {}
EarlyReduction::~EarlyReduction() = default;

void EarlyReduction::add(const HeldModel& base, std::uint64_t chunk_values, Algorithm reduction,
                         std::vector<TrainedPart> parts, const round::ByteRanges& ready) {
  if (stopping_) return;
  if (!state_ || state_->base.ref != base.ref || !same_results(state_->parts, parts)) {
    state_ = std::make_shared<State>(base, chunk_values, reduction, gpus_.get());
  }
  state_->parts = std::move(parts);
  state_->ready.join(ready);
  if (state_->running) return;
  state_->running = true;
  tasks_.spawn(runtime_.strand, "reduce early", reduce(state_));
}

net::Awaitable<void> EarlyReduction::reduce(std::shared_ptr<State> state) {
  events_.reads();
  while (!stopping_ && state_ == state && !state->reduced.covers(state->ready)) {
    const std::vector<TrainedPart> parts = state->parts;  // keeps the workers' memory
    const round::ByteRanges ready = state->ready;
    const Status reduced = co_await runtime_.pool.run([this, &state, &parts, &ready] {
      net::PoolParallel parallel(runtime_.pool);
      return state->mean->reduce(state->base.schema, views_of(parts), ready, parallel);
    });
    if (!reduced.ok()) {  // whoever makes the update will meet it and say so
      if (state_ == state) state_.reset();
      break;
    }
    state->reduced = ready;
    runtime_.log.debug("reduced early", {{"run", state->base.ref.run}, {"chunks", state->mean->chunks_done()}});
  }
  state->running = false;
  state.reset();  // and, unless it is wanted, the workers' memory
  rested_.notify_all();
  events_.read();
}

net::Awaitable<std::shared_ptr<PartialMean>> EarlyReduction::take(std::vector<TrainedPart> parts) {
  const std::shared_ptr<State> state = std::exchange(state_, nullptr);
  if (!state || !same_results(state->parts, parts)) co_return nullptr;
  while (state->running) co_await rested_.wait();
  co_return state->mean->chunks_done() > 0 ? state->mean : nullptr;
}

void EarlyReduction::stop() {
  stopping_ = true;
  state_.reset();
  rested_.notify_all();
}

}  // namespace fluvial::edge
