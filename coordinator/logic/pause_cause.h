// Why a run is paused, as one word for an alert. The run's reason is text for people, and it is all that the journal
// keeps: so the word is read from the text, which has the same phrases after a restart as before.
#pragma once

#include <string>
#include <string_view>

namespace fluvial::coordinator {

// What the machine writes into the reasons of its waiting, and of the pauses that it decides itself.
inline constexpr std::string_view kNoQuorumPhrase = "no quorum after ";
inline constexpr std::string_view kMendPhrase = "mend it, then resume the run";
inline constexpr std::string_view kSitesPhrase = "waiting for sites: ";
inline constexpr std::string_view kNoRoomPhrase = "the plan leaves no room: ";
inline constexpr std::string_view kSumPhrase = "the sum could not be made: ";

enum class PauseCause { kPerson, kNoQuorum, kDisk, kSum, kPlan };
std::string_view pause_cause_name(PauseCause cause);  // "person", "no_quorum", ...: values of a metric's label

PauseCause pause_cause(std::string_view reason);  // a text with none of the phrases is a person's

}  // namespace fluvial::coordinator
