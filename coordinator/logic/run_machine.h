// The run at the root: when a round opens, who takes part, when it closes, what is committed. A pure step machine: an
// event and a time go in, effects come out, and each effect's completion comes back as an event. Write-ahead shows in
// the order: OpenRound follows attempt_recorded(), Publish follows commit_recorded().
//
//   idle -> recording -> open -> finalising -> committing -> idle ...      paused, stopped, done
//             ^------------'  hard deadline: the next attempt of the same round, with others for who is not in
#pragma once

#include <map>
#include <optional>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/round/gather.h"
#include "core/round/pace.h"
#include "core/round/plan.h"
#include "core/round/record.h"

namespace fluvial::coordinator {

using ArrivalId = Id<struct ArrivalTag>;  // the caller's name for a verified update or partial that it holds staged

// ---- effects ------------------------------------------------------------------------------------------------------
struct RecordAttempt {
  round::AttemptRecord record;
  bool new_round;  // the sum starts at zero; otherwise it keeps what it holds
};
struct OpenRound {};  // tell every child; also to be told to each child that connects while a round is open
struct TellMoved {    // the open round's sites that have another way or lease: their old and their new parents are told
  std::vector<SiteId> sites;
};
struct SetTimer {
  TimePoint at;  // replaces the timer before; tick() when it fires
};
struct Take {
  ArrivalId arrival;  // add it to the sum, then taken()
};
struct Release {
  ArrivalId arrival;  // it is in the sum, and need not be kept
};
struct Drop {
  ArrivalId arrival;
  Error error;  // tell the child, and whom a partial must do without
};
struct Finalise {
  round::CommitRecord record;  // with everything but the model: make that, write it, then finalised()
};
struct RecordCommit {
  round::CommitRecord record;
};
struct Publish {
  round::CommitRecord record;
  bool last;
};
enum class RunStatus { kRunning, kPaused, kStopped, kDone };
struct RecordStatus {
  RunStatus status;
  std::string reason;
};
using Effect = std::variant<RecordAttempt, OpenRound, TellMoved, SetTimer, Take, Release, Drop, Finalise, RecordCommit,
                            Publish, RecordStatus>;
using Effects = std::vector<Effect>;

std::string_view status_name(RunStatus status);

struct SiteInfo {
  Epoch lease;
  std::uint64_t weight_max = 0;
  bool operator==(const SiteInfo&) const = default;
};

// What a run is when the coordinator takes it up, new or from the journal.
struct RunStart {
  RunId run;
  round::Plan plan;
  round::ModelRef model;                     // the last committed, or the initial one
  RoundId last_committed;                    // 0: none
  std::optional<round::AttemptRecord> open;  // an attempt without a commit
  Epoch epoch;                               // this coordinator's term
  RunStatus status = RunStatus::kRunning;
  std::string reason;
};

class RunMachine {
 public:
  explicit RunMachine(RunStart start);

  Effects begin(TimePoint now);
  Effects sites_changed(std::map<SiteId, SiteInfo> connected, TimePoint now);
  Effects attempt_recorded(TimePoint now);
  // Leases that the coordinator has granted (durably) since: what comes under the ones before is refused from here on.
  // What the sum holds stays counted, whoever brought it.
  Effects leases_changed(const std::map<SiteId, Epoch>& leases);
  Effects arrived(ArrivalId arrival, const round::Arrival& what);
  Effects taken(ArrivalId arrival, const round::ContributorSet& with_probes, TimePoint now);
  Effects take_failed(ArrivalId arrival, const Error& error, TimePoint now);
  Effects refused(const round::Refusal& refusal, TimePoint now);
  Effects tick(TimePoint now);
  Effects finalised(const round::ModelRef& model);
  Effects commit_recorded(TimePoint now);
  Effects step_failed(
      const Error& error);            // of RecordAttempt, Finalise or RecordCommit: the run pauses, nothing is lost
  Effects pause(std::string reason);  // no round opens; the open one closes first
  Effects stop(std::string reason);   // for good and at once; what the open round holds is given up
  Effects resume(TimePoint now);      // of a paused run, or one that is about to pause

  // Before anything of it is staged: would it be taken?
  Status admit(SiteId site, Epoch lease, std::uint64_t weight) const;
  Status admit(AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const;

  bool is_open() const { return phase_ == Phase::kOpen; }
  bool is_between_rounds() const { return phase_ == Phase::kIdle || phase_ == Phase::kHalted; }
  const round::AttemptRecord& attempt() const { return attempt_; }
  const round::Gather& gather() const { return gather_; }
  const round::Plan& plan() const { return plan_; }
  const round::ModelRef& model() const { return model_; }
  RoundId last_committed() const { return last_committed_; }
  RunId run() const { return run_; }
  RunStatus status() const { return status_; }
  const std::string& reason() const { return reason_; }  // of the status; while idle, what is waited for
  TimePoint soft_deadline() const { return soft_; }
  TimePoint hard_deadline() const { return hard_; }
  const round::Pace& pace() const { return pace_; }  // of this run's sites, since this process took it up

 private:
  enum class Phase { kIdle, kRecording, kOpen, kFinalising, kCommitting, kHalted };
  template <typename LeaseOf>
  Effects move_leases(const LeaseOf& lease_of);
  Effects run_steps(TimePoint now);  // what the state as it stands calls for
  void try_open(Effects& out);
  void try_close(TimePoint now, Effects& out);
  void next_attempt(Effects& out, bool new_round);
  Status make_room();
  void call_substitutes();
  void halt(RunStatus status, std::string reason, Effects& out);
  void note_pace(TimePoint now);
  bool has_quorum() const;

  RunId run_;
  round::Plan plan_;
  round::ModelRef model_;
  RoundId last_committed_;
  Epoch epoch_;
  RunStatus status_;
  std::string reason_;
  std::optional<std::pair<RunStatus, std::string>> halt_wanted_;  // when the open round has closed

  Phase phase_ = Phase::kIdle;
  bool round_begun_ = false;  // attempt_ belongs to the round after last_committed_
  round::AttemptRecord attempt_;
  std::uint32_t expired_attempts_ = 0;
  round::Gather gather_;
  std::map<ArrivalId, round::ContributorSet> taking_;
  std::map<SiteId, SiteInfo> connected_;
  round::CommitRecord commit_;
  round::Pace pace_;
  TimePoint opened_at_;
  TimePoint soft_;
  TimePoint hard_;
};

}  // namespace fluvial::coordinator
