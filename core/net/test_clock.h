// A clock that a test moves, for a listener's opinion of who has been still for long.
#pragma once

#include <atomic>

#include "core/base/clock.h"

namespace fluvial::net {

// Its steady clock stands still until advance(); its wall clock is the machine's, since certificates go by that. Thread
// safe.
class TestClock final : public Clock {
 public:
  TimePoint now() const override { return TimePoint(Duration(passed_.load())); }
  WallTime wall_now() const override { return SystemClock().wall_now(); }
  void advance(Duration time) { passed_ += time.count(); }

 private:
  std::atomic<Duration::rep> passed_{Duration(std::chrono::hours(1)).count()};
};

}  // namespace fluvial::net
