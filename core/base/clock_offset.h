// How far a peer's clocks are from our own, from questions and answers between the two.
//
// We ask at t1, the peer gets the question at t2 and answers at t3 (its clock), we get the answer at t4. As in NTP (RFC
// 5905, section 8):
//
//   offset = ((t2 - t1) + (t3 - t4)) / 2      round trip = (t4 - t1) - (t3 - t2)
//
// The true offset is within half the round trip of it, however unlike the two ways are (Cristian, "Probabilistic clock
// synchronization", Distributed Computing 3, 1989). Of the last samples the one counts that is the most certain now:
// half its round trip, and what the two clocks may have run apart since (RFC 5905, section 10: the clock filter).
//
// Steady clocks drift and stand still while a machine sleeps. A sample that cannot be true together with the one that
// counts says that one of them did: those before it are forgotten.
#pragma once

#include <array>
#include <cstddef>
#include <optional>

#include "core/base/clock.h"

namespace fluvial {

// The most that two clocks run apart, in seconds a second. Quartz is within 50 ppm.
inline constexpr double kClockDrift = 100e-6;

struct ClockOffset {
  Duration steady{};       // the peer's steady clock minus our own
  Duration uncertainty{};  // of `steady`, either way
  Duration wall{};         // the peer's wall clock minus our own, by the last sample: wall clocks jump
  bool operator==(const ClockOffset&) const = default;
};

struct ClockSample {
  TimePoint asked;     // t1, ours
  TimePoint received;  // t2, the peer's
  TimePoint sent;      // t3, the peer's
  TimePoint answered;  // t4, ours
  WallTime peer_wall;  // at t3
  WallTime own_wall;   // at t4
};

// Not thread safe; allocates nothing.
class ClockOffsets {
 public:
  static constexpr std::size_t kLength = 8;

  explicit ClockOffsets(double drift = kClockDrift) : drift_(drift) {}

  // What contradicts itself (an answer that left before its question came, or that took longer at the peer than here)
  // is passed over, and so is what is further away than any clock.
  void add(const ClockSample& sample);
  std::optional<ClockOffset> at(TimePoint now) const;  // none before the first sample

 private:
  struct Kept {
    ClockOffset offset;
    TimePoint at;
  };
  Duration uncertainty(const Kept& kept, TimePoint now) const;
  const Kept* best(TimePoint now) const;

  double drift_;
  std::array<Kept, kLength> kept_{};
  std::size_t count_ = 0;
  std::size_t next_ = 0;
};

}  // namespace fluvial
