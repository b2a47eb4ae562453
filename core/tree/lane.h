// Work that must happen one after the other, in the order in which it was asked for, while the strand goes on: what
// touches a sum.
#pragma once

#include <deque>
#include <functional>

#include "core/net/awaitable.h"
#include "core/net/signal.h"

namespace fluvial::tree {

// On one strand. run() is spawned once, by the owner, who joins it.
class Lane {
 public:
  using Work = std::function<net::Awaitable<void>()>;

  explicit Lane(const net::Executor& strand) : changed_(strand) {}

  void push(Work work);
  net::Awaitable<void> run();  // until stop(), then what is queued is left
  void stop();
  std::size_t tasks() const { return queue_.size() + (working_ ? 1 : 0); }  // queued or running

 private:
  std::deque<Work> queue_;
  net::AsyncSignal changed_;
  bool working_ = false;
  bool stopping_ = false;
};

}  // namespace fluvial::tree
