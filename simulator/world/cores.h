// The processors of one machine that all hosts of a world share, as in a benchmark on loopback. Work takes the one that
// is free first, in the order of the requests.
#pragma once

#include <algorithm>
#include <cstddef>
#include <vector>

#include "core/base/clock.h"

namespace fluvial::simulator {

class Cores {
 public:
  explicit Cores(std::size_t count) : free_at_(count) {}  // 0: each host has as many as it wants

  // How long from now until work that takes `cost` on one processor is done.
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
