// What is wrong in a federation, as a person needs it at night: what, since when, what to do, and which section of the
// runbook says more. Pure: the facts go in. An alert of deploy/prometheus has the same section; it comes later, because
// it waits until a thing has lasted, and here everything is said as soon as it is so.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/absence.h"
#include "coordinator/logic/federation.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/round/plan.h"

namespace fluvial::coordinator {

// Of what is left of a certificate: by then it was to be renewed long ago, as it is from half of its life on.
inline constexpr int kCertificateWarningPart = 4;  // of its life, and no more than the bounds below
inline constexpr int kCertificateErrorPart = 12;
inline constexpr Duration kCertificateWarning = std::chrono::hours(24 * 14);
inline constexpr Duration kCertificateError = std::chrono::hours(24 * 2);
// Of what is left of the authority: a person renews it, perhaps one of another department. It may live for millennia.
inline constexpr std::chrono::milliseconds kAuthorityWarning = std::chrono::hours(24 * 60);
inline constexpr std::chrono::milliseconds kAuthorityError = std::chrono::hours(24 * 14);
inline constexpr double kStagingWarning = 0.9;  // of the budget

// A site that works and is in no round: what is so, and what to do about it.
struct Uncounted {
  std::string what;
  std::string advice;
};
// `missed`: how many rounds running. None: they may be too few to tell.
std::optional<Uncounted> uncounted(const round::Plan& plan, std::uint32_t missed);

struct MemberFacts {
  std::string name;
  Role role = Role::kSite;
  Stay stay;
  std::string quarantine;  // why; empty: it is in none
  std::optional<WallTime> quarantined_at;
  std::string ahead;                         // why it is refused as knowing more than the journal
  std::string past;                          // the aggregator that it should be below
  std::string past_reason;                   // why it is not
  std::optional<double> straggler_score;     // of a straggler
  std::optional<std::uint64_t> workers;      // of a site that reports
  std::optional<WallTime> certificate_ends;  // as it reports
  std::optional<Duration> wall_offset;       // its wall clock minus ours
  bool held_twice = false;                   // two machines show its identity
  bool too_heavy = false;                    // it takes no part in the run (RunMachine::is_too_heavy)
  bool silent = false;                       // core/round/attendance.h
  std::optional<Uncounted> uncounted;
  bool is_away() const { return !stay.here; }
};

struct RunFacts {
  RunId run;
  bool paused = false;
  bool by_person = false;
  std::string reason;         // of the pause
  std::string waits;          // between rounds: why none opens
  RoundId round;              // open, else 0
  std::uint64_t attempt = 0;  // of the open round
  std::uint64_t quorum = 0;
  std::uint64_t in = 0;
  std::uint64_t may_come = 0;  // awaited, and connected
};

struct Situation {
  WallTime now;
  Duration certificate_validity = std::chrono::hours(24 * 90);  // for how long they are issued
  std::optional<WallTime> authority_began = {};                 // of the certificate that issues
  std::optional<WallTime> authority_ends = {};                  // then it issues nothing, and what it issued has ended
  std::string storage_fault;                                    // empty: none
  std::optional<RunFacts> run;                                  // that has not ended
  std::uint64_t staging_bytes = 0;
  std::uint64_t staging_bytes_max = 0;
  std::vector<MemberFacts> members;  // neither revoked nor removed
};

enum class Severity { kError, kWarning };  // an error: a run stands still, or will soon, until somebody does something

struct Problem {
  Severity severity = Severity::kWarning;
  std::string what;
  std::string node;  // empty: the federation or a run
  std::optional<WallTime> since;
  std::string advice;
  std::string runbook;  // a page of docs/operations, with its section
};

// The worst first.
std::vector<Problem> problems(const Situation& facts);

// For whoever starts a run: members that take no part in it, because their token allows too much (is_too_heavy).
std::optional<std::string> heavy_sites_note(const round::Plan& plan, const std::map<NodeId, NodeEntry>& nodes);

}  // namespace fluvial::coordinator
