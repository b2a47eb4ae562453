#include "coordinator/logic/refusal_meter.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fluvial::coordinator {

std::optional<std::uint64_t> RefusalMeter::refused(TimePoint now) {
  const double minutes = std::chrono::duration<double, std::ratio<60>>(now - last_.value_or(now)).count();
  room_ = std::min(kAtOnce, room_ + minutes * kPerMinute);
  last_ = now;
  if (room_ < 1) {
    ++not_written_;
    return std::nullopt;
  }
  room_ -= 1;
  return std::exchange(not_written_, 0);
}

}  // namespace fluvial::coordinator
