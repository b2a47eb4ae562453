// How long something was going on, in all and since the last lap: a site's training, from commit to commit. Pure; the
// times are readings of one monotonic clock.
#pragma once

#include <optional>

#include "core/base/clock.h"

namespace fluvial::edge {

class BusyTime {
 public:
  void set(bool busy, TimePoint now);
  Duration total(TimePoint now) const { return done_ + (since_ ? now - *since_ : Duration(0)); }
  // The share of the time since the lap before in which it was going on, 0 to 1. Nothing at the first lap, or when no
  // time has passed.
  std::optional<double> lap(TimePoint now);

 private:
  struct Lap {
    TimePoint at;
    Duration total;
  };
  Duration done_{};
  std::optional<TimePoint> since_;  // it is going on
  std::optional<Lap> last_;
};

}  // namespace fluvial::edge
