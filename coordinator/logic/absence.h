// Why a site is not in the open round, and what to do about it, in words for the person who asks at night. Pure: what
// the coordinator knows goes in. Without what nodes report of themselves (an earlier version sends no reports) the
// words say what the sessions alone tell.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/attendance.h"
#include "core/round/report.h"

namespace fluvial::coordinator {

using round::Doing;
using round::doing_name;

// What a node said of itself last.
struct Activity {
  Doing doing = Doing::kIdle;
  RunId run;
  RoundId round;
  std::uint64_t workers = 0;
  std::uint64_t done_bytes = 0;  // of what it does; both 0: unknown
  std::uint64_t total_bytes = 0;
  std::optional<double> left_s;  // by the rate so far
  std::string note;              // its own words, if it has any
  WallTime since;                // it does that since then, by the coordinator's clock
  Duration heard_ago{};
  std::optional<WallTime> certificate_ends;
  std::optional<Duration> wall_offset;  // its wall clock minus ours
};

// Whether a node is connected, and since when it is or is not.
struct Stay {
  bool here = false;
  bool came = false;  // it was connected at least once since the coordinator's start
  WallTime since;     // while it never came: the coordinator's start
};

// Where a participant stands in the round.
enum class Place { kIn, kAwaited, kMissing, kMissedPass, kRefused };

struct SiteKnown {
  Place place = Place::kAwaited;
  std::optional<Error> refusal;   // of kRefused
  bool declined = false;          // the refusal is the site's own word
  std::uint32_t missed_pass = 0;  // of kMissedPass: it takes no part in those after it
  bool revoked = false;
  std::string quarantine;  // why; empty: it is in none
  std::string ahead;       // why it is refused as knowing more than the journal
  Stay stay;
  std::string parent;                       // the aggregator that it belongs below; empty: none
  std::optional<Stay> parent_stay;          // of that aggregator
  std::optional<Activity> activity;         // of the site
  std::optional<Activity> parent_activity;  // of that aggregator
  bool overdue = false;                     // the round's soft deadline is over
  round::Expected expected = round::Expected::kYes;
};

// kAsked: and not waited for.
enum class AbsenceState { kIn, kAwaited, kRefused, kDeclined, kAway, kMissed, kAsked };
std::string_view absence_state_name(
    AbsenceState state);  // "in", "awaited", "refused", "declined", "away", "missed", ...

struct Absence {
  AbsenceState state = AbsenceState::kAwaited;
  std::string reason;                // empty when it is in
  std::string advice;                // what a person does about it; empty: nothing, it takes its time
  std::optional<WallTime> since;     // that it is so
  std::optional<Activity> activity;  // of the node that the round waits for: the site, or its aggregator
  bool is_usual() const { return advice.empty(); }
};
Absence why(const SiteKnown& site, WallTime now);

// "03:12 UTC", with the day when that is not within the last 20 hours.
std::string clock_time(WallTime then, WallTime now);
std::string amount(std::uint64_t done_bytes, std::uint64_t total_bytes);  // "40 of 400 MiB"

// "hospital-a: no worker attached; hospital-b: ...; and 17 more", at most `names_max` of them and each reason cut.
std::string listed(const std::vector<std::pair<std::string, std::string>>& reasons, std::size_t names_max = 8);

}  // namespace fluvial::coordinator
