// How fast a site sends: what is sent is paid for with time, and nothing is saved up while nothing is sent. Pure: the
// time is passed in.
#pragma once

#include <algorithm>
#include <cstdint>

#include "core/base/clock.h"

namespace fluvial::edge {

class UploadRate {
 public:
  explicit UploadRate(std::uint64_t bytes_per_s) : bytes_per_s_(bytes_per_s) {}  // 0: no limit

  bool is_limited() const { return bytes_per_s_ != 0; }
  TimePoint due() const { return due_; }  // when the next piece may go
  void sent(std::uint64_t bytes, TimePoint now) {
    if (bytes_per_s_ == 0) return;
    const double seconds = static_cast<double>(bytes) / static_cast<double>(bytes_per_s_);
    due_ = std::max(due_, now) + std::chrono::duration_cast<Duration>(std::chrono::duration<double>(seconds));
  }

 private:
  std::uint64_t bytes_per_s_;
  TimePoint due_{};
};

}  // namespace fluvial::edge
