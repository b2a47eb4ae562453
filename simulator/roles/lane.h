// Work of one process that happens one after the other and takes time: what touches its sum. core/tree/lane.h in
// virtual time.
#pragma once

#include <deque>
#include <utility>

#include "simulator/world/world.h"

namespace fluvial::simulator {

class Lane {
 public:
  Lane(World& world, HostId host) : world_(world), host_(host) {}

  // `work` runs when what was pushed before has, and `cost` has passed.
  void push(Duration cost, Action work) {
    queue_.push_back({cost, std::move(work)});
    if (!running_) next();
  }

 private:
  struct Item {
    Duration cost;
    Action work;
  };
  void next() {
    running_ = !queue_.empty();
    if (!running_) return;
    world_.after(host_, world_.compute(queue_.front().cost), [this] {
      Item item = std::move(queue_.front());
      queue_.pop_front();
      item.work();
      // What the work asked of the disk took time as well.
      world_.after_disk(host_, [this] { next(); });
    });
  }

  World& world_;
  HostId host_;
  std::deque<Item> queue_;
  bool running_ = false;
};

}  // namespace fluvial::simulator
