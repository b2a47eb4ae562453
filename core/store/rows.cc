#include "core/store/rows.h"

namespace fluvial::store {

bool TokenRow::is_for(Role member_role, std::string_view member_name) const {
  if (member_role != role) return false;
  if (!name.ends_with("-*")) return member_name == name;
  return member_name.size() >= name.size() &&
         member_name.starts_with(std::string_view(name).substr(0, name.size() - 1));
}

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
