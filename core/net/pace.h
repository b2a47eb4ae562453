// How fast something may go on: a number each second, and a burst after a rest. Pure: the time is passed in.
#pragma once

#include <algorithm>

#include "core/base/clock.h"

namespace fluvial::net {

// Not thread safe.
class Pace {
 public:
  Pace(double per_second, TimePoint now) : Pace(per_second, per_second, now) {}
  Pace(double per_second, double burst, TimePoint now)
      : per_second_(per_second), burst_(burst), left_(burst), last_(now) {}

  // One more goes. Zero: at once; otherwise how long it is to wait first. Nobody is to be let by meanwhile.
  Duration take(TimePoint now) {
    refill(now);
    left_ -= 1;
    return left_ >= 0 ? Duration::zero() : wait_for(-left_);
  }
  // Zero, and one more goes; or how long until one may, and none does.
  Duration try_take(TimePoint now) {
    refill(now);
    if (left_ < 1) return wait_for(1 - left_);
    left_ -= 1;
    return Duration::zero();
  }
  bool is_rested(TimePoint now) const { return refilled(now) >= burst_; }

 private:
  double refilled(TimePoint now) const {
    return std::min(burst_, left_ + std::chrono::duration<double>(now - last_).count() * per_second_);
  }
  void refill(TimePoint now) {
    left_ = refilled(now);
    last_ = std::max(last_, now);
  }
  Duration wait_for(double amount) const {
    const auto wait = std::chrono::duration_cast<Duration>(std::chrono::duration<double>(amount / per_second_));
    return std::max<Duration>(wait, std::chrono::microseconds(100));
  }

  double per_second_;
  double burst_;
  double left_;
  TimePoint last_;
};

}  // namespace fluvial::net
