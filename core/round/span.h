// What a node did for a round, and when: for the timeline of a round (docs/operations/timeline.md). By the node's own
// steady clock. Pure; soft state.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <optional>
#include <string_view>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"

namespace fluvial::round {

enum class SpanKind : std::uint8_t {  // by the numbers that they have on the wire; append only
  kFetch = 1,                         // the base model, from its naming until it is whole and checked
  kTrain = 2,                         // a site's workers, from the task on
  kReduce = 3,                        // a site: the workers' results to p
  kEncode = 4,                        // p to chunks, written as they are made
  kPersist = 5,                       // a submission: what is written made durable
  kSend = 6,                          // an update or a partial to the parent
  kStage = 7,                         // a parent: a child's update or partial, from its admission until it is verified
  kAccumulate = 8,                    // a parent: what was staged, added to the sum
  kFinalise = 9,                      // the coordinator: mean and optimizer
  kFsync = 10,                        // the coordinator: model files and the journal
  kPublish = 11,                      // the coordinator: the commit handed to the children's sessions
  kVector = 12,                       // what a pass begins with beside the model, fetched as that is
};
inline constexpr std::array kSpanKinds = {SpanKind::kFetch,  SpanKind::kTrain,      SpanKind::kReduce,
                                          SpanKind::kEncode, SpanKind::kPersist,    SpanKind::kSend,
                                          SpanKind::kStage,  SpanKind::kAccumulate, SpanKind::kFinalise,
                                          SpanKind::kFsync,  SpanKind::kPublish,    SpanKind::kVector};
std::string_view span_name(SpanKind kind);                            // "fetch", "train", ...
std::optional<SpanKind> span_kind_from_number(std::uint64_t number);  // none: of a later version

struct Span {
  SpanKind kind = SpanKind::kFetch;
  NodeId about;  // the child that it was of; 0: nobody
  TimePoint begun;
  TimePoint ended;
  bool operator==(const Span&) const = default;
};

struct RoundSpans {
  RunId run;
  RoundId round;
  std::vector<Span> spans;  // as they ended
  bool operator==(const RoundSpans&) const = default;
};

inline constexpr std::size_t kTracedRounds = 32;      // of which spans are kept
inline constexpr std::size_t kSpansInRoundMax = 512;  // of one node; then the oldest goes

// The spans of one node's last rounds: a ring of rounds, each a ring of spans. It keeps what it has grown to: after
// some rounds nothing is allocated any more. Not thread safe.
class SpanLog {
 public:
  // An operation begins; again before its end: the first time holds. Then it ends; one that never began does nothing.
  void begun(RunId run, RoundId round, SpanKind kind, TimePoint now, NodeId about = {});
  void ended(RunId run, RoundId round, SpanKind kind, TimePoint now, NodeId about = {});
  void add(RunId run, RoundId round, const Span& span);  // one that is over

  // In the order of their ends, since they were taken last. Empty: none, or too long ago.
  RoundSpans of(RunId run, RoundId round) const;
  // Of this round and of those before it in its run, the oldest first, what was not taken yet: to be told once. What of
  // them goes on ends now.
  std::vector<RoundSpans> take_until(RunId run, RoundId round, TimePoint now);

 private:
  struct Slot {
    RunId run;
    RoundId round;
    bool taken = false;
    std::size_t oldest = 0;
    std::vector<Span> spans;
  };
  struct Open {
    RunId run;
    RoundId round;
    Span span;  // without an end
  };
  Slot& slot_of(RunId run, RoundId round);
  std::vector<Open>::iterator find(RunId run, RoundId round, SpanKind kind, NodeId about);
  static RoundSpans read(const Slot& slot);

  std::vector<Slot> slots_;  // at most kTracedRounds
  std::size_t next_ = 0;     // to be used again once there are so many
  std::vector<Open> open_;   // at most kSpansInRoundMax, the oldest first
};

}  // namespace fluvial::round
