// What a round waited for: the critical path from its opening to its commit, node by node, and in words. Pure.
//
// It is walked backwards from the commit. On a node, what went before is the operation that ended last before this one
// began, and that this one can have waited for: an addition waits for additions before it and for the staging of what
// it adds, anything else for whatever ended. A staging leads to the child that sent, a model's arrival to the parent
// that passed it on while it got it itself. In a round with several passes (docs/design/phases.md) a later one leads to
// the mean that the coordinator made of the one before. What lies between two operations is `waiting`. Each step ends
// where the next one begins, so the steps make up the whole round, whatever the clocks say.
#pragma once

#include <functional>
#include <string>
#include <string_view>
#include <vector>

#include "coordinator/logic/traces.h"

namespace fluvial::coordinator {

inline constexpr std::string_view kWaiting = "waiting";

struct CriticalStep {
  std::string_view name;  // a span's, or kWaiting
  NodeId node;            // 0: the coordinator
  Duration time{};
  bool operator==(const CriticalStep&) const = default;
};

// In the order in which they happened; together as long as the round.
std::vector<CriticalStep> critical_path(const RoundTrace& trace);

// "round 17 took 4.1 s: 3.2 s training at hospital-b, 0.6 s its upload, 0.3 s finalising at coordinator". What is less
// than a hundredth is put together at the end.
std::string words_of(const RoundTrace& trace, const std::vector<CriticalStep>& path,
                     const std::function<std::string(NodeId)>& name_of);

std::string time_text(Duration time);  // "4.1 s", "120 ms", "3 min 20 s"

}  // namespace fluvial::coordinator
