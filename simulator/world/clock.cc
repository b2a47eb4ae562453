#include "simulator/world/clock.h"

#include <cmath>

namespace fluvial::simulator {
namespace {

constexpr WallTime kWorldBegins{std::chrono::milliseconds(1'700'000'000'000)};

}  // namespace

TimePoint HostClock::now() const {
  const Duration passed = scheduler_->now() - world_base_;
  if (rate_ == 1) return local_base_ + passed;
  return local_base_ + Duration(static_cast<Duration::rep>(static_cast<double>(passed.count()) * rate_));
}

WallTime HostClock::wall_now() const {
  return kWorldBegins +
         std::chrono::floor<std::chrono::milliseconds>(scheduler_->now().time_since_epoch() + wall_offset_);
}

TimePoint HostClock::world_time(TimePoint local) const {
  const Duration ahead = local - local_base_;
  if (rate_ == 1) return world_base_ + ahead;
  // Rounded up, plus one: when the event fires, now() is not before `local`.
  return world_base_ + Duration(static_cast<Duration::rep>(std::ceil(static_cast<double>(ahead.count()) / rate_)) + 1);
}

void HostClock::set_rate(double rate) {
  local_base_ = now();
  world_base_ = scheduler_->now();
  rate_ = rate;
}

void HostClock::jump_wall(Duration by) { wall_offset_ += by; }

void HostClock::reboot() {
  booted_ = world_base_ = scheduler_->now();
  local_base_ = TimePoint(std::chrono::seconds(10));
}

}  // namespace fluvial::simulator
