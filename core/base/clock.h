// Time is passed in. Durations and deadlines are monotonic; wall time is for people and certificates alone.
#pragma once

#include <chrono>

namespace fluvial {

using Duration = std::chrono::nanoseconds;

struct MonotonicTag {
  using rep = Duration::rep;
  using period = Duration::period;
  using duration = Duration;
  using time_point = std::chrono::time_point<MonotonicTag>;
  static constexpr bool is_steady = true;
};
using TimePoint = MonotonicTag::time_point;
using WallTime = std::chrono::sys_time<std::chrono::milliseconds>;

class Clock {
 public:
  virtual ~Clock() = default;
  virtual TimePoint now() const = 0;
  virtual WallTime wall_now() const = 0;
};

// The machine's clocks (CLOCK_MONOTONIC, CLOCK_REALTIME). Thread safe.
class SystemClock final : public Clock {
 public:
  TimePoint now() const override {
    return TimePoint(std::chrono::duration_cast<Duration>(std::chrono::steady_clock::now().time_since_epoch()));
  }
  WallTime wall_now() const override {
    return std::chrono::time_point_cast<std::chrono::milliseconds>(std::chrono::system_clock::now());
  }
};

}  // namespace fluvial
