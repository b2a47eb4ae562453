// How fast members bring their payloads while others wait. The slower a member is, the less of the gate's memory it
// shares (payload_gate.h): so a payload waits for members about as fast as its own and for faster ones, and for nobody
// who lets payloads trickle, however often that one comes.
//
// What counts is how long a payload was in the way: it held memory, more of it was due from its peer, and somebody of
// its lane or a faster one waited. A payload that took too long for its lane moves its member into a slower one at
// once. The member comes back a lane at a time, each time that none of its payloads has been as slow for a while. A
// member that never holds anybody up stays in the first lane, however slow its line. Pure: the time is passed in. Not
// thread safe.
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>

#include "core/base/clock.h"

namespace fluvial::net {

class PayloadLanes {
 public:
  static constexpr std::size_t kLanes = 3;  // 0: the fastest
  static constexpr Duration kForgivenAfter = std::chrono::minutes(5);

  static std::size_t lane_for(std::size_t payload_bytes, Duration in_the_way);

  std::size_t lane_of(std::uint64_t member, TimePoint now) const;
  void ended(std::uint64_t member, std::size_t payload_bytes, Duration in_the_way, TimePoint now);
  std::size_t size() const { return slow_.size(); }  // members that are remembered

 private:
  struct Slow {
    std::size_t lane = 0;
    TimePoint since;  // the last payload that was so slow
  };
  static std::size_t lane_now(const Slow& slow, TimePoint now);
  std::map<std::uint64_t, Slow> slow_;
};

}  // namespace fluvial::net
