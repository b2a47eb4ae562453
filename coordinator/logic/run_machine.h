// The run at the root: when a round opens, who takes part, when it closes, what is committed. A pure step machine: an
// event and a time go in, effects come out, and each effect's completion comes back as an event. Write-ahead shows in
// the order: OpenRound follows attempt_recorded(), Publish follows commit_recorded(), TellStatus and the Answer to a
// command follow status_recorded(). Each of these names the Step that it completes. The completion of any other step
// than the one under way does nothing, nor does taken() of an arrival that is not being taken.
//
//   idle -> recording -> open -> finalising -> finalised -> committing -> idle ...      halted: paused, stopped, done
//             ^------------'  hard deadline, or nobody is left to come: the next attempt of the same round, with
//                             substitutes for missing sites
//   open -> reducing -> open     of a round with several passes (docs/design/phases.md), before its last one
//
// One of RecordAttempt, Reduce, Finalise, RecordCommit and RecordStatus is under way at a time. A person's command
// waits until the step before it is over, and no step begins before the journal has recorded or refused the command.
#pragma once

#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <variant>
#include <vector>

#include "core/base/clock.h"
#include "core/round/attendance.h"
#include "core/round/fairness.h"
#include "core/round/gather.h"
#include "core/round/lateness.h"
#include "core/round/pace.h"
#include "core/round/plan.h"
#include "core/round/record.h"
#include "core/round/run_status.h"
#include "core/round/sampling.h"

namespace fluvial::coordinator {

using round::ArrivalId;

// A step under way, with the number that the machine gave it: no two steps of a run have the same number.
struct Step {
  RunId run;
  std::uint64_t number = 0;
  bool operator==(const Step&) const = default;
};

// ---- effects ------------------------------------------------------------------------------------------------------
struct RecordAttempt {
  Step step;
  round::AttemptRecord record;
  bool sum_anew;           // the sum starts at zero; otherwise it keeps what it holds
  bool goes_over = false;  // what is staged stays: it came when the window before was being committed
};
struct OpenRound {};  // tell every child, and later each child that connects while the round is open
struct TellMoved {    // the open round's sites with another way or lease: their old and their new parents are told
  std::vector<SiteId> sites;
};
struct SetTimer {
  TimePoint at;  // replaces the timer before; tick() when it fires
};
struct Take {
  ArrivalId arrival;                             // add it to the sum, then taken()
  std::optional<ModelVersion> admitted_on = {};  // admitted anew, on this model: it came between two rounds
};
struct Release {
  ArrivalId arrival;  // it is in the sum, and need not be kept
};
struct Drop {
  ArrivalId arrival;
  Error error;  // tell the child, with the sites that a partial must do without
};
struct Reduce {  // a pass before the last is over: make its mean and empty the sum for the next one, then reduced()
  Step step;
  std::uint32_t pass = 0;
  round::ContributorSet contributors;  // that the sum holds
};
struct Finalise {
  Step step;
  round::CommitRecord record;  // complete but for the model: make and write the model, then finalised()
  round::Divisor divisor;      // of the sum
};
struct RecordCommit {
  Step step;
  round::CommitRecord record;
};
struct Publish {
  round::CommitRecord record;
  bool last;
};
using round::RunStatus;
struct RecordStatus {  // then status_recorded() or status_failed()
  Step step;
  RunStatus status;
  std::string reason;
  // Who was awaited and did not come, where that is the reason: whoever knows why completes it by explain() before it
  // is recorded.
  std::vector<SiteId> absent = {};
};
struct TellStatus {  // tells children and people the recorded status
  RunStatus status;
  std::string reason;
};
struct Answer {  // to the oldest unanswered command (pause, resume, stop); each gets one
  Status result;
};
using Effect = std::variant<RecordAttempt, OpenRound, TellMoved, SetTimer, Take, Release, Drop, Reduce, Finalise,
                            RecordCommit, Publish, RecordStatus, TellStatus, Answer>;
using Effects = std::vector<Effect>;

struct SiteInfo {
  Epoch lease;
  std::uint64_t weight_max = 0;
  std::uint64_t name_key = 0;  // core/base/name_key.h; 0: sampling goes by its number
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
  // Of a run with `late = "next"`: the models before `model`, newest first; who was late in the last commit, or
  // refused as holding_an_update() says; what was decided of each site.
  std::vector<round::ModelRef> earlier = {};
  std::vector<SiteId> late = {};
  round::Marks marks = {};
  int scale_bits = 0;       // of the last attempt on record; windows keep it
  round::Rates rates = {};  // of a run that is fair by rate, from its last round::kRateHistory commits
  // Of its codec: how many values travel in each pass of a round (empty: it has one), and the state that sites begin
  // the next round with; none: as before the first.
  std::vector<std::uint64_t> pass_values = {};
  std::optional<round::VectorRef> codec_state = {};
};

// Whose update was refused so that its site keeps it, and it may enter a later round. Whoever declines a round has made
// none for it, or is drawn for a later one as ever.
std::vector<SiteId> holding_an_update(const std::vector<round::Refusal>& refusals);

class RunMachine {
 public:
  explicit RunMachine(RunStart start);

  Effects begin(TimePoint now);
  Effects sites_changed(std::map<SiteId, SiteInfo> connected, TimePoint now);
  Effects attempt_recorded(Step step, TimePoint now);
  // Leases that the coordinator has granted (durably) since: arrivals under earlier leases are refused from here on.
  // What the sum holds stays counted, whoever brought it.
  Effects leases_changed(const std::map<SiteId, Epoch>& leases);
  Effects arrived(ArrivalId arrival, const round::Arrival& what);
  Effects taken(ArrivalId arrival, const round::ContributorSet& with_probes, TimePoint now);
  // Part of the arrival may be in the sum, and earlier arrivals are not kept: everybody is asked again in the next
  // attempt. The present one counts as expired.
  Effects take_failed(ArrivalId arrival, const Error& error, TimePoint now);
  Effects refused(const round::Refusal& refusal, TimePoint now);
  // The site itself declines `attempt`; 0: the open one. A decline of any other attempt does nothing, because the open
  // attempt asks the site anew.
  Effects declined(AttemptId attempt, const round::Refusal& refusal, TimePoint now);
  // A participant is no longer a member: it is not awaited. If the sum holds its update, that cannot be taken out and
  // stays in for this attempt; in the next attempt the sum begins anew without it.
  Effects shut_out(const round::Refusal& refusal, TimePoint now);
  Effects tick(TimePoint now);
  void heard(SiteId site);                  // something of its own has come
  void has_workers(SiteId site, bool any);  // as it reports
  Effects reduced(Step step, const round::VectorRef& mean, TimePoint now);
  // `codec_state`: that the round leaves, where it hands one down.
  Effects finalised(Step step, const round::ModelRef& model, TimePoint now,
                    const std::optional<round::VectorRef>& codec_state = {});
  Effects commit_recorded(Step step, TimePoint now);
  // Of RecordAttempt, Reduce, Finalise or RecordCommit: the run pauses, nothing is lost.
  Effects step_failed(Step step, const Error& error);
  void explain(Step step, std::string reason);  // of the status that this step records
  Effects status_recorded(Step step, TimePoint now);
  // The journal keeps the earlier status. A person's command is not carried out; a run that pauses by itself pauses.
  Effects status_failed(Step step, const Error& error, TimePoint now);

  // A person's commands, each answered by an Answer once the journal has recorded it.
  Effects pause(std::string reason, TimePoint now);  // no round opens; the open one closes first
  Effects stop(std::string reason, TimePoint now);   // for good; what the open round holds is given up
  Effects resume(TimePoint now);                     // of a paused run, or one that is about to pause

  // Would an arrival be taken? Asked before anything of it is staged.
  Status admit(SiteId site, Epoch lease, std::uint64_t weight) const;
  // `round`: that the partial was made for; with windows perhaps one before the open one.
  Status admit(RoundId round, AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const;
  // Whether what is for this round may come in: it is open, or one shortly before it was (docs/design/late.md).
  bool takes(RoundId round, bool is_update) const;
  std::uint32_t share_of(SiteId site) const;  // that an update of it has which is admitted now
  // Of these, who counts for another share than its rate gave it when it was admitted, or was admitted too long ago to
  // tell.
  std::vector<SiteId> miscounted(const round::ContributorSet& contributors) const;

  // What the round in progress, or the next one, says of updates that missed theirs; none: they are late.
  std::optional<round::Lateness> lateness() const { return round::lateness_of(plan_, earlier_); }

  // The pass in progress, or the first of the next attempt; none: rounds have one.
  std::optional<round::Pass> pass() const;
  round::Pass pass_after(const round::VectorRef& mean) const;  // the one in progress, which is not the last
  // Who takes part in the pass after one with these contributors.
  std::vector<round::Participant> participants_after(const round::ContributorSet& contributors) const;
  // The earlier pass of this attempt that a participant was not in; none: it takes part in this one, or was refused.
  std::optional<std::uint32_t> missed_pass(SiteId site) const;
  // Of this attempt: in earlier passes, or shut out since.
  std::map<SiteId, round::Refusal> refused_before() const;

  // Whether a site that is connected takes no part because its maximum weight is more than such a run can add.
  bool is_too_heavy(SiteId site) const;

  Step step() const { return step_; }  // the last step: under way, or over
  bool awaits(Step step) const;        // whether this step is under way
  bool is_open() const { return phase_ == Phase::kOpen; }
  bool is_between_rounds() const { return phase_ == Phase::kIdle || phase_ == Phase::kHalted; }
  bool waits_for_sites() const { return phase_ == Phase::kIdle && status_ == RunStatus::kRunning; }
  const round::AttemptRecord& attempt() const { return attempt_; }
  const round::Gather& gather() const { return gather_; }
  const round::Plan& plan() const { return plan_; }
  const round::ModelRef& model() const { return model_; }
  RoundId last_committed() const { return last_committed_; }
  RunId run() const { return run_; }
  RunStatus status() const { return status_; }           // as the journal has it, or paused because that failed
  const std::string& reason() const { return reason_; }  // of the status; while idle, what the run waits for
  // Why it pauses once the open round closes, as the journal has it already; none: it does not.
  const std::optional<std::string>& pausing() const { return pause_wanted_; }
  TimePoint opened_at() const { return opened_at_; }  // the open attempt, by this process
  TimePoint soft_deadline() const { return soft_; }
  TimePoint hard_deadline() const { return hard_; }
  const round::Pace& pace() const { return pace_; }  // of this run's sites, since this process took it up
  const round::Attendance& attendance() const { return attendance_; }

 private:
  enum class Phase { kIdle, kRecording, kOpen, kReducing, kFinalising, kFinalised, kCommitting, kHalted };
  struct Wish {  // a person's
    RunStatus status;
    std::string reason;
  };
  struct StatusStep {
    RunStatus status;
    std::string reason;
    bool by_person = false;
    std::vector<SiteId> absent = {};
  };
  template <typename LeaseOf>
  Effects move_leases(const LeaseOf& lease_of);
  Effects run_steps(TimePoint now);  // what the state as it stands calls for
  bool is_step_under_way() const;
  Step next_step() { return step_ = {run_, step_.number + 1}; }
  Effects wish(RunStatus status, std::string reason, TimePoint now);
  void consider_wish(Effects& out);
  void obey(const StatusStep& step, Effects& out);
  void become(RunStatus status, std::string reason, Effects& out);
  void record_status(StatusStep step, Effects& out);
  std::vector<round::Participant> participants_of(const std::vector<SiteId>& drawn) const;
  round::Participant participant_of(SiteId site, const SiteInfo& info) const;
  void keep_quorum(const std::set<SiteId>& drawn, std::set<SiteId>* without) const;
  bool is_too_heavy(const SiteInfo& info) const;
  std::map<SiteId, round::Lot> lots() const;  // of the connected sites that may take part
  void begin_gather();
  bool is_closing() const;  // what comes meanwhile is for the next round
  bool has_goal() const;
  Status check_goes_over(const round::Arrival& what) const;
  Status check_shares(const round::ContributorSet& contributors) const;
  bool is_waiting(const round::ContributorSet& contributors) const;
  bool may_wait(const round::Arrival& what) const;
  void take_in(ArrivalId arrival, const round::Arrival& what, std::optional<ModelVersion> admitted_on, Effects& out);
  void refuse(const round::Refusal& refusal);
  void offer_waiting(Effects& out);
  void drop_waiting(const std::string& why, Effects& out);
  void note_leads();
  void note_heard();
  void note_refused(const std::vector<round::Refusal>& refusals);
  std::set<SiteId> too_far_ahead() const;
  Result<int> scale_for(std::uint64_t weight_sum, int before) const;
  void note_counted();
  void decide(SiteId site, RoundId own);
  void try_open(Effects& out);
  void try_close(TimePoint now, Effects& out);
  TimePoint ends_at(TimePoint now) const;
  void close_pass(TimePoint now, Effects& out);
  void begin_passes();
  bool is_pass_lost() const;
  std::set<SiteId> absent() const;
  Duration soft_time_of_pass() const;
  void complete_commit();
  void note_on_record();
  void forget_unrecorded();
  void next_attempt(Effects& out, bool sum_anew);
  void try_again(Effects& out);
  Status make_room();
  void call_substitutes();
  void halt(RunStatus status, std::string reason, Effects& out);
  void halt(StatusStep step, Effects& out);
  void halt_without_quorum(Effects& out);
  void note_pace(TimePoint now);
  void note_attendance();
  std::vector<round::Participant> expected() const;
  void give_up_sum(TimePoint now, Effects& out);
  bool has_quorum() const;

  RunId run_;
  round::Plan plan_;
  round::ModelRef model_;
  RoundId last_committed_;
  Epoch epoch_;
  RunStatus status_;
  std::string reason_;
  std::deque<Wish> wishes_;                  // without an answer yet
  std::optional<StatusStep> status_step_;    // being recorded
  std::optional<std::string> pause_wanted_;  // the reason of a recorded pause that begins once the open round closes

  Step step_;
  Phase phase_ = Phase::kIdle;
  bool round_begun_ = false;  // attempt_ belongs to the round after last_committed_
  round::AttemptRecord attempt_;
  std::set<SiteId> on_record_;  // the begun round's participants that the journal has
  std::uint32_t expired_attempts_ = 0;
  round::Gather gather_;
  std::map<SiteId, round::Refusal> shut_out_;  // during this attempt
  std::map<ArrivalId, round::ContributorSet> taking_;
  std::map<ArrivalId, round::Arrival> waiting_;  // for the next round, with `late = "next"`
  std::map<SiteId, std::uint64_t> leads_;        // of each site that may take part, how many windows have heard of it
  bool goes_over_ = false;                       // as above: the last was committed, and the next is not on record
  std::optional<Error> spoilt_;                  // why the sum cannot be used
  std::map<SiteId, SiteInfo> connected_;
  round::CommitRecord commit_;
  std::vector<std::uint64_t> pass_values_;  // empty: a round has one pass, and hands nothing down
  std::optional<round::VectorRef> codec_state_;
  bool lost_early_ = false;                          // the attempt that has ended, in a later pass
  std::vector<round::PassRecord> passes_;            // of this attempt, those that are over
  std::map<SiteId, round::Refusal> refused_before_;  // in these
  std::map<SiteId, std::uint32_t> missed_before_;    // the first of these that somebody missed
  Duration first_pass_{};                            // how long the first of them was open
  std::vector<round::ModelRef> earlier_;  // before model_, newest first; those that an update may still be from
  std::map<SiteId, RoundId> missed_;      // the first round that the site missed since one of its updates counted
  round::Marks marks_;                    // with `late = "next"`
  round::Rates rates_;                    // of a run that is fair by rate
  round::Pace pace_;
  round::Attendance attendance_;
  TimePoint opened_at_;
  TimePoint soft_;
  TimePoint hard_;
  TimePoint timer_;  // that is set
};

}  // namespace fluvial::coordinator
