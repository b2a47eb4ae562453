#include "core/round/outcome.h"

namespace fluvial::round {

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPending: return "pending";
    case Outcome::kCounted: return "counted";
    case Outcome::kLate: return "late";
    case Outcome::kRefused: return "refused";
  }
  return "unknown";
}

}  // namespace fluvial::round
