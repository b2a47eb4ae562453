#include "core/round/run_status.h"

namespace fluvial::round {

std::string_view run_status_name(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning: return "running";
    case RunStatus::kPaused: return "paused";
    case RunStatus::kStopped: return "stopped";
    case RunStatus::kDone: return "done";
  }
  return "unknown";
}

std::optional<RunStatus> parse_run_status(std::string_view name) {
  for (const RunStatus status : {RunStatus::kRunning, RunStatus::kPaused, RunStatus::kStopped, RunStatus::kDone}) {
    if (run_status_name(status) == name) return status;
  }
  return std::nullopt;
}

}  // namespace fluvial::round
