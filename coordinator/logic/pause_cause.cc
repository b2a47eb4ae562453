#include "coordinator/logic/pause_cause.h"

namespace fluvial::coordinator {

std::string_view pause_cause_name(PauseCause cause) {
  switch (cause) {
    case PauseCause::kPerson: return "person";
    case PauseCause::kNoQuorum: return "no_quorum";
    case PauseCause::kDisk: return "disk";
    case PauseCause::kSum: return "sum";
    case PauseCause::kPlan: return "plan";
  }
  return "unknown";
}

PauseCause pause_cause(std::string_view reason) {
  const auto says = [reason](std::string_view phrase) { return reason.find(phrase) != std::string_view::npos; };
  if (says(kNoQuorumPhrase)) return PauseCause::kNoQuorum;  // first: its reason ends with what sites noted
  if (says(kMendPhrase)) return PauseCause::kDisk;
  if (says(kNoRoomPhrase)) return PauseCause::kPlan;
  if (says(kSumPhrase)) return PauseCause::kSum;
  return PauseCause::kPerson;
}

}  // namespace fluvial::coordinator
