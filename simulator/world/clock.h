// The clocks of one host: a monotonic one that may drift, a wall clock that may be wrong and jump.
#pragma once

#include "core/base/clock.h"
#include "simulator/world/scheduler.h"

namespace fluvial::simulator {

class HostClock final : public Clock {
 public:
  // `begins`: what its monotonic clock shows first.
  explicit HostClock(const Scheduler& scheduler, TimePoint begins = TimePoint(std::chrono::hours(1)))
      : scheduler_(&scheduler), local_base_(begins) {}

  TimePoint now() const override;  // this host's monotonic time, which differs from the scheduler's
  WallTime wall_now() const override;

  // When, in virtual time, this host's monotonic clock will show `local`, at the rate it has now.
  TimePoint world_time(TimePoint local) const;

  void set_rate(double rate);                   // 1.0001: it runs 100 ppm fast. Time stays continuous
  TimePoint booted() const { return booted_; }  // in virtual time
  void jump_wall(Duration by);                  // only the wall clock
  void reboot();                                // monotonic time starts near zero again

 private:
  const Scheduler* scheduler_;
  TimePoint world_base_{};  // at which the local clock showed local_base_
  TimePoint local_base_;
  TimePoint booted_{};
  double rate_ = 1;
  Duration wall_offset_{};  // of the wall clock from true time
};

}  // namespace fluvial::simulator
