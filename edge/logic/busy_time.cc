#include "edge/logic/busy_time.h"

#include <utility>

namespace fluvial::edge {

void BusyTime::set(bool busy, TimePoint now) {
  if (busy == since_.has_value()) return;
  if (busy) {
    since_ = now;
  } else {
    done_ += now - *std::exchange(since_, std::nullopt);
  }
}

std::optional<double> BusyTime::lap(TimePoint now) {
  const Lap before = last_.value_or(Lap{now, {}});
  last_ = {now, total(now)};
  if (now <= before.at) return std::nullopt;
  return std::chrono::duration<double>(last_->total - before.total) / std::chrono::duration<double>(now - before.at);
}

}  // namespace fluvial::edge
