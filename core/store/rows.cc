#include "core/store/rows.h"

namespace fluvial::store {

std::string_view run_status_name(RunStatus status) {
  switch (status) {
    case RunStatus::kRunning: return "running";
    case RunStatus::kPaused: return "paused";
    case RunStatus::kStopped: return "stopped";
    case RunStatus::kDone: return "done";
  }
  return "unknown";
}

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPending: return "pending";
    case Outcome::kCounted: return "counted";
    case Outcome::kLate: return "late";
    case Outcome::kRefused: return "refused";
  }
  return "unknown";
}

}  // namespace fluvial::store
