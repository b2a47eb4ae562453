// What the nodes did in the last rounds, by the coordinator's clock: collected from what they report. Pure; soft state,
// lost with the process.
#pragma once

#include <cstddef>
#include <deque>
#include <map>
#include <optional>
#include <vector>

#include "core/base/clock.h"
#include "core/round/report.h"
#include "core/round/span.h"

namespace fluvial::coordinator {

// NodeId(0) is the coordinator itself, here and in spans' `about`.
struct TracedNode {
  NodeId parent;
  bool told = false;               // its spans came
  Duration offset{};               // of its steady clock from ours
  Duration uncertainty{};          // of its spans' times, either way
  std::vector<round::Span> spans;  // by our clock, as they ended
};

struct RoundTrace {
  RunId run;
  RoundId round;
  AttemptId attempt;
  TimePoint opened;
  WallTime opened_at;
  TimePoint committed;                 // durably
  std::map<NodeId, TracedNode> nodes;  // the coordinator, the participants, and who is between them
};

// A round as it is committed, with what the coordinator did itself.
struct Committed {
  RunId run;
  RoundId round;
  AttemptId attempt;
  TimePoint opened;
  WallTime opened_at;
  TimePoint committed;
  std::vector<round::Span> spans;
  std::map<NodeId, NodeId> parents;  // of each participant, and of each aggregator on its way
};

class Traces {
 public:
  static constexpr std::size_t kRoundsMax = round::kTracedRounds;
  static constexpr std::size_t kSpansMax = 1 << 18;  // of all rounds together; then the oldest rounds go

  explicit Traces(double drift = kClockDrift) : drift_(drift) {}

  void committed(Committed round);
  // A member below us. What it says of a round that is not kept, or that it had no part in, is passed over, and so is
  // what was long before the round or after it.
  void told(const round::NodeReport& report);

  const RoundTrace* find(RunId run, RoundId round) const;  // null: not kept
  std::optional<RoundId> newest(RunId run) const;
  std::size_t kept(RunId run) const;  // rounds

 private:
  std::size_t add(RoundTrace& trace, const round::NodeReport& report, const round::RoundSpans& spans) const;
  void make_room();

  double drift_;
  std::deque<RoundTrace> rounds_;  // the oldest first
  std::size_t spans_ = 0;
};

}  // namespace fluvial::coordinator
