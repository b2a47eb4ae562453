// How long an aggregator has had no parent. On the node's strand.
#pragma once

#include <functional>
#include <utility>

#include "core/net/timer.h"

namespace fluvial::aggregator {

class ParentAbsence {
 public:
  ParentAbsence(const net::Executor& strand, Duration max, std::function<void()> too_long)
      : timer_(strand), max_(max), too_long_(std::move(too_long)) {}

  void begins() {
    timer_.after(max_, [this] {
      is_too_long_ = true;
      too_long_();
    });
  }
  void ends() {
    timer_.cancel();
    is_too_long_ = false;
  }
  void stop() { timer_.cancel(); }
  bool is_too_long() const { return is_too_long_; }

 private:
  net::Timer timer_;
  Duration max_;
  std::function<void()> too_long_;
  bool is_too_long_ = false;
};

}  // namespace fluvial::aggregator
