// What a node says of itself to its parent, and a parent of the nodes below it to its own: for people who want to see
// what the tree is doing. Soft state: nothing is decided by it, and what is lost loses nothing.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/clock_offset.h"
#include "core/base/ids.h"
#include "core/round/span.h"

namespace fluvial::round {

enum class Doing : std::uint8_t {
  kUnknown,    // a word of a later version
  kIdle,       // nothing: no round asks for it
  kWaiting,    // for an outcome
  kFetching,   // the model
  kTraining,   // a site: its workers have the task, or are waited for
  kEncoding,   // a site
  kFolding,    // a site: an update that came too late, into the residual
  kSending,    // an update or a partial
  kResolving,  // a site: writes the outcome of its update
  kMerging,    // an aggregator: its part of the round is open
};
inline constexpr Doing kDoings[] = {Doing::kUnknown,   Doing::kIdle,     Doing::kWaiting, Doing::kFetching,
                                    Doing::kTraining,  Doing::kEncoding, Doing::kFolding, Doing::kSending,
                                    Doing::kResolving, Doing::kMerging};
std::string_view doing_name(Doing doing);      // "idle", "training", ...
Doing doing_from_name(std::string_view name);  // kUnknown for another word

inline constexpr std::size_t kNoteBytesMax = 200;
inline constexpr std::size_t kReportedRoundsMax = 4;  // in one report

// Where a node's steady clock is from the reader's. Of the reader itself it is all 0.
struct ClockDistance {
  Duration offset{};  // the node's minus the reader's
  Duration uncertainty{};
  bool operator==(const ClockDistance&) const = default;
};

struct NodeReport {
  NodeId node;
  Doing doing = Doing::kUnknown;
  Duration doing_for{};  // until the report left
  RunId run;             // 0: none
  RoundId round;         // 0: none
  std::uint32_t workers = 0;
  std::uint64_t done_bytes = 0;   // of what it fetches or sends
  std::uint64_t total_bytes = 0;  // 0: unknown, or neither
  std::uint64_t bytes_up = 0;     // payload, to its parent since this session with it began
  std::uint64_t bytes_down = 0;   // likewise, from its parent
  std::string note;               // for people: what keeps it, "no worker attached"; at most kNoteBytesMax
  std::optional<WallTime> certificate_ends;
  std::optional<ClockDistance> clock = ClockDistance{};  // none: somewhere on the way it was not measured yet
  std::vector<RoundSpans> rounds;       // that are over, at most kReportedRoundsMax; by the node's clock
  std::optional<Duration> wall_offset;  // of its wall clock from its parent's, there; not sent
  TimePoint heard;                      // by whoever keeps it; not sent
  bool operator==(const NodeReport&) const = default;
};

// Whether it says that the node has begun something for a round since then, by the clock of whoever has heard it. A
// site without a worker does not train, whatever it waits for.
bool shows_work(const NodeReport& report, TimePoint since);

// `newer` replaces `report`, but for the rounds that wait in it and were not sent yet: these stay, the oldest go.
void replace(NodeReport& report, NodeReport newer);

// It waited for so long before it goes on.
void age(NodeReport& report, Duration time);

// How a report changes by an edge: `child` is the child's clock as its parent measured it.
void cross(NodeReport& report, const std::optional<ClockOffset>& child);

}  // namespace fluvial::round
