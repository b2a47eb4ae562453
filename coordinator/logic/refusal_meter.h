// How many refusals of strangers are written down one by one: whoever can reach a port can be refused at it as often as
// they like, and the audit log is kept for good. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock.h"

namespace fluvial::coordinator {

class RefusalMeter {
 public:
  static constexpr double kAtOnce = 10;
  static constexpr double kPerMinute = 1;

  // Another refusal: how many before it were not written; none: this one is not, either.
  std::optional<std::uint64_t> refused(TimePoint now);

 private:
  double room_ = kAtOnce;
  std::optional<TimePoint> last_;
  std::uint64_t not_written_ = 0;
};

}  // namespace fluvial::coordinator
