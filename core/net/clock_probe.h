// One end's part in learning the other's clocks by Ping and Pong (docs/formats/frame.md). Not thread safe.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock_offset.h"
#include "fluvial/v1/wire.pb.h"

namespace fluvial::net {

class ClockProbe {
 public:
  explicit ClockProbe(const Clock& clock, double drift = kClockDrift) : clock_(clock), offsets_(drift) {}

  TimePoint now() const { return clock_.now(); }
  // The answer to a Ping that came at `received`, leaving now.
  v1::Pong answer(std::uint64_t token, TimePoint received) const;

  void asked(std::uint64_t token);  // a Ping leaves
  // False: it is of another Ping, or of a peer that tells no times.
  bool answered(const v1::Pong& pong);
  bool is_settling() const { return samples_ < kFirstSamples; }  // worth asking again at once
  std::optional<ClockOffset> offset() const { return offsets_.at(clock_.now()); }

 private:
  static constexpr int kFirstSamples = 3;  // the first answers often come late: a session begins with work

  struct Asked {
    std::uint64_t token = 0;
    TimePoint at;
  };
  const Clock& clock_;
  ClockOffsets offsets_;
  std::optional<Asked> asked_;  // the newest
  int samples_ = 0;
};

}  // namespace fluvial::net
