// The faults that come at their own times: partitions, crashes, half-open sessions, clock jumps, revocations; and
// their end. Faults of an operation (a lost frame, a failed write, a crash between two effects) are drawn there.
#pragma once

#include <string_view>

#include "simulator/world/world.h"

namespace fluvial::simulator {

class Weather {
 public:
  explicit Weather(World& world);  // both live as long as the world steps

  void begin();
  // Faults::until has passed: nothing begins any more, partitions are healed, disks and links work, hosts come up.
  bool is_over() const { return over_; }

 private:
  struct Partition {
    enum class Kind { kHost, kRegion } kind = Kind::kHost;
    HostId host;
    std::uint32_t region = 0;
    bool in = false;
    bool out = false;
    bool flaps = false;
    bool is_cut = false;
    TimePoint until{};
  };
  // Calls `act` at exponential intervals until the faults end.
  void repeat(std::string_view name, double per_minute, void (Weather::*act)(Rng& rng));
  struct Repeat {
    Rng rng;
    Duration mean{};
    void (Weather::*act)(Rng& rng) = nullptr;
  };
  void next(std::size_t repeat_index);
  void part(Rng& rng);
  void crash(Rng& rng);
  void half_open(Rng& rng);
  void jump(Rng& rng);
  void revoke(Rng& rng);
  void lose_folder(Rng& rng);
  void pause(Rng& rng);
  void stop(Rng& rng);
  void roll_over(Rng& rng);
  HostId any_site(Rng& rng) const;  // the root when there is none
  DiskFaults disk_faults(const Host& host) const;
  void back_up(Rng& rng);
  void restore(Rng& rng);
  void set_cut(Partition& partition, bool cut);
  void flap(std::size_t partition_index);
  void end();

  World& world_;
  std::vector<Repeat> repeats_;
  std::vector<Partition> partitions_;
  Rng flap_rng_;
  bool over_ = false;
};

}  // namespace fluvial::simulator
