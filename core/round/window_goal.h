// With how many contributions a window commits before its time is over (docs/design/windows.md).
#pragma once

#include <algorithm>
#include <cstdint>

namespace fluvial::round {

inline constexpr std::uint64_t kWindowGoal = 10;  // unless the plan says another

// `asked`: the plan's async.goal; 0: it names none.
constexpr std::uint64_t window_goal(std::uint64_t asked, std::uint64_t participants) {
  return asked == 0 ? std::min(kWindowGoal, (participants + 1) / 2) : asked;
}

// As people are told it: where fewer take part the window commits with all of them.
constexpr std::uint64_t window_goal_told(std::uint64_t asked, std::uint64_t participants) {
  return std::min(window_goal(asked, participants), participants);
}

}  // namespace fluvial::round
