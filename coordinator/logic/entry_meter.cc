#include "coordinator/logic/entry_meter.h"

#include <algorithm>
#include <chrono>
#include <utility>

namespace fluvial::coordinator {

std::optional<std::uint64_t> EntryMeter::happened(TimePoint now) {
  using Seconds = std::chrono::duration<double>;
  room_ = std::min(bound_.at_once, room_ + Seconds(now - last_.value_or(now)) / Seconds(bound_.each));
  last_ = now;
  if (room_ < 1) {
    ++not_written_;
    return std::nullopt;
  }
  room_ -= 1;
  return std::exchange(not_written_, 0);
}

}  // namespace fluvial::coordinator
