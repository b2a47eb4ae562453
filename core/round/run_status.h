// Whether a run goes on.
#pragma once

#include <optional>
#include <string_view>

namespace fluvial::round {

enum class RunStatus { kRunning, kPaused, kStopped, kDone };  // the numbers stand in the coordinator's journal

// "running", "paused", ...: so it stands on the wire, in a backup's manifest and before people. "unknown" for any other
// number.
std::string_view run_status_name(RunStatus status);
std::optional<RunStatus> parse_run_status(std::string_view name);

// The run has ended for good: no round of it opens any more, and only another run can continue it.
constexpr bool is_over(RunStatus status) { return status == RunStatus::kStopped || status == RunStatus::kDone; }

}  // namespace fluvial::round
