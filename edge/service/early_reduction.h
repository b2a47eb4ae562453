// Reduces on the pool what all workers of a job have in place already, while they compute the rest. On the node's
// strand.
#pragma once

#include <functional>
#include <memory>
#include <vector>

#include "core/net/awaitable.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/tree/runtime.h"
#include "edge/service/trained.h"
#include "edge/update/partial_mean.h"

namespace fluvial::edge {

class EarlyReduction {
 public:
  // Called when results begin to be read, also those that are dropped then, and when they are read no more.
  struct Events {
    std::function<void()> reads;
    std::function<void()> read;
  };
  EarlyReduction(tree::Runtime& runtime, net::TaskGroup& tasks, std::shared_ptr<SiteGpus> gpus, Events events);
  ~EarlyReduction();

  // `ready`: of each part these bytes are in place. Other parts than before (another worker has taken over, or one has
  // gone) begin anew.
  void add(const HeldModel& base, std::uint64_t chunk_values, Algorithm reduction, std::vector<TrainedPart> parts,
           const round::ByteRanges& ready);
  // What was reduced of exactly these parts, once nothing of it is being reduced any more; none when there is nothing.
  net::Awaitable<std::shared_ptr<PartialMean>> take(std::vector<TrainedPart> parts);
  void drop() { state_.reset(); }
  void stop();

 private:
  struct State;
  net::Awaitable<void> reduce(std::shared_ptr<State> state);

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  std::shared_ptr<SiteGpus> gpus_;  // null: none
  Events events_;
  std::shared_ptr<State> state_;
  net::AsyncSignal rested_;
  bool stopping_ = false;
};

}  // namespace fluvial::edge
