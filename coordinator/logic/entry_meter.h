// How many entries of one kind the audit log gets: strangers and members decide how often they come, and the log is
// kept for good. Pure; not thread safe.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock.h"

namespace fluvial::coordinator {

class EntryMeter {
 public:
  struct Bound {
    double at_once = 10;                      // entries; as many are saved up at most
    Duration each = std::chrono::minutes(1);  // one more
  };
  EntryMeter() = default;
  explicit EntryMeter(const Bound& bound) : bound_(bound), room_(bound.at_once) {}

  // It happened again: how many before it were not written; none: this one is not, either.
  std::optional<std::uint64_t> happened(TimePoint now);

 private:
  Bound bound_;
  double room_ = Bound().at_once;
  std::optional<TimePoint> last_;
  std::uint64_t not_written_ = 0;
};

}  // namespace fluvial::coordinator
