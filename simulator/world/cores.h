// The processors of one machine, when all hosts of a world share it, as in a benchmark on loopback. Work takes one of
// them, whichever is free first, in the order in which it was asked for.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/clock.h"

namespace fluvial::simulator {

class Cores {
 public:
  explicit Cores(std::size_t count) : free_at_(count) {}  // 0: each host has as many as it wants

  // How long from now until work that takes `cost` of one is done.
  Duration take(TimePoint now, Duration cost) {
    if (free_at_.empty()) return cost;
    TimePoint& first = *std::ranges::min_element(free_at_);
    first = std::max(first, now) + cost;
    return first - now;
  }

 private:
  std::vector<TimePoint> free_at_;
};

}  // namespace fluvial::simulator
