// A site's part in its rounds: fetch the model, train, encode, send, and resolve by what the commit says. A pure step
// machine. Two rules keep contributions exact (docs/design/exactly-once.md): a submission is durable before its trailer
// is sent, and stays until there is an explicit outcome for it; nothing newer is encoded before.
//
//   offered -> fetching -> training -> encoding -> pending (durable, being sent) -> resolving -> offered ...
//                                   `-> folding, when the round closed meanwhile: the update goes into the residual
// In a round with several passes (docs/design/phases.md) a pending submission is encoded once more from the mean that
// an opening names, durably, before that is sent: pending -> fetching the mean -> encoding the pass -> pending. With
// `late = "next"` (docs/design/late.md) training goes on when its round closes, and what it gives, or a submission that
// waits, is sent into a later round. With windows (docs/design/windows.md) the next training begins while a submission
// waits, from a newer model than that was trained from; what it gives is encoded after the outcome.
//
// An effect ends with an event that names its work or its submission; an event that comes too late does nothing. Each
// run's end counts once, and a run that is over is complete once no work of it is left.
#pragma once

#include <map>
#include <optional>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/history.h"
#include "core/round/lateness.h"
#include "core/round/outcome.h"
#include "core/round/pass.h"
#include "core/round/plan.h"
#include "core/round/received.h"
#include "core/round/record.h"

namespace fluvial::edge {

using round::Outcome;
using round::Received;

// A round that this site takes part in, as its parent opened it.
struct Offer {
  RunId run;
  RoundId round;
  AttemptId attempt;
  round::Plan plan;
  round::ModelRef base;
  Epoch lease;
  std::uint64_t weight_max = 0;              // as in the round's record; 0: not told
  bool counted = false;                      // the parent's side holds this site's contribution
  std::optional<Received> received;          // of a submission whose transfer was cut off
  std::optional<std::uint64_t> cohort = {};  // how many sites the round asks; none: the coordinator has not signed it
  std::optional<round::Lateness> late = {};  // updates of earlier rounds may enter it
  std::vector<RunId> continues = {};  // the run before, the one before that, ...: their unspent residual is this run's
  std::optional<round::Pass> pass = {};  // that is open; none: the round has one
  Epoch epoch = {};                      // of the attempt
  std::uint32_t pass_index() const { return pass ? pass->index : 0; }
};

// A durable submission without an outcome.
struct Pending {
  RunId run;
  RoundId round;
  Digest digest{};
  Incarnation incarnation;  // that encoded it
  std::uint64_t submission = 0;
  // Of a round with several passes all of that is of the last pass that is durable, which this is. What was encoded for
  // the first one stays, with a number of its own.
  round::MadeFrom from = {};
  struct Number {
    Incarnation incarnation;
    std::uint64_t submission = 0;
    bool operator==(const Number&) const = default;
  };
  Number first = {};  // where this is of a later pass
  Number number_of(std::uint32_t pass) const {
    return pass == 0 && from.pass > 0 ? first : Number{incarnation, submission};
  }
  bool operator==(const Pending&) const = default;
};

// The work for one offer, from its training to a submission or to the residual: 1, 2, ... within a process.
using WorkId = Id<struct WorkTag>;

// A commit's outcome for this site. Empty when the commit came by a way that does not know the site, which then asks.
struct Verdict {
  std::optional<Digest> counted;  // the digest that is in: this site's pending submission only if it has the same
  bool refused = false;
  bool late = false;
  // The round that the refused update is of; none: the commit's. One of an earlier round is no word on this round's,
  // and the site asks about it: an earlier commit may have counted it.
  std::optional<RoundId> refused_own = {};
  std::string reason = {};  // of a refusal, in the words of whoever refused it: for people
};

Verdict verdict_of(SiteId self, const round::ContributorSet& contributors, const std::vector<round::Refusal>& refusals,
                   const std::vector<SiteId>& late);

// Why the site's update was refused, as the commit has it.
std::string reason_of(SiteId self, const std::vector<round::Refusal>& refusals);

// Of the site's workers, one each. kPermissionDenied when they are more together than the round has on record for the
// site (0: not told), or than an update may have: one that claimed less would weigh less than it should in the mean.
Status check_weights(const std::vector<std::uint64_t>& weights, std::uint64_t weight_max);

// ---- effects ------------------------------------------------------------------------------------------------------
struct FetchModel {  // then model_ready(); replaces a fetch of another model
  round::ModelRef model;
};
struct FetchState {  // of the codec, that the first pass is encoded with; then state_ready(). Replaces another
  Offer offer;
};
struct FetchMean {  // that the pass is made from; then mean_ready(). Replaces another
  Offer offer;
};
struct EncodePass {  // of the pending submission: encode, make durable; then pass_encoded() or pass_failed()
  Offer offer;
  Pending pending;
};
struct Train {  // then trained() or train_failed()
  Offer offer;
  WorkId work;
};
struct Encode {  // the trained update: screen, encode, make durable; then encoded() or encode_failed()
  Offer offer;
  WorkId work;
};
struct Fold {  // the trained update goes into the residual; then folded()
  Offer offer;
  WorkId work;
  bool lost = false;      // its round is of an earlier history: no outcome of it is remembered
  bool run_lost = false;  // its run is of an earlier history: it is dropped, as no residual could take it
};
struct Send {   // the pending submission; a transfer under another lease or to another parent is given up
  Offer offer;  // of the round that it enters, its own or a later one
  std::uint64_t first_chunk = 0;  // the parent has the chunks before it
};
struct StopSending {};
// Asks the coordinator for the outcome of the pending submission. If the answer is lost, the site asks again: with the
// next session, the next commit or the next opening, and whenever ask_again() is called.
struct Ask {
  Pending pending;
};
struct AskRun {  // asks whether a run goes on; then run_goes_on() or run_over(). Asked again in the same way
  RunId run;
};
struct Resolve {  // durably, once; then resolved()
  Pending pending;
  Outcome outcome;
};
// No write is under way any more: the store may enter the other history. Then history_entered().
struct EnterHistory {};
struct DeclineRound {
  RunId run;
  RoundId round;
  AttemptId attempt;
  Error error;
};
struct CompleteRun {  // it is over and no work of it is left: its unspent residual can be looked at
  RunId run;
};
using Effect = std::variant<FetchModel, FetchState, FetchMean, Train, Encode, EncodePass, Fold, Send, StopSending, Ask,
                            AskRun, Resolve, EnterHistory, DeclineRound, CompleteRun>;
using Effects = std::vector<Effect>;

class SiteMachine {
 public:
  // From the site's store: a pending submission, and the runs that the site took part in.
  explicit SiteMachine(std::optional<Pending> pending, std::set<RunId> runs = {})
      : pending_(pending), runs_(std::move(runs)) {
    if (pending_) runs_.insert(pending_->run);
  }

  Effects connected();  // a session to a parent is up
  Effects ask_again();  // from time to time: a commit, a question or its answer may have been lost further up
  // Again after a reconnect, and for the next attempt. `forbidden`: why the site's owner wants no part in it; it is
  // declined, unless work for it has begun.
  Effects offered(Offer offer, const std::optional<Error>& forbidden = {});
  Effects model_ready(const round::ModelRef& model);
  Effects state_ready(const Digest& state);
  Effects mean_ready(const Digest& mean);
  Effects pass_encoded(const Pending& pending);
  Effects pass_failed(const Error& error);
  Effects trained(WorkId work);
  Effects train_failed(WorkId work, const Error& error);
  Effects encoded(WorkId work, const Pending& pending);
  Effects encode_failed(WorkId work, const Error& error);
  Effects folded(WorkId work);
  Effects committed(RunId run, RoundId round, const Verdict& verdict, const round::ModelRef& model);
  Effects answered(const Pending& about, Outcome outcome);
  // The round that an old submission was sent into says that it has this site's already, or that it was decided before.
  Effects turned_away(RunId run, RoundId round);
  void taken(RunId run);  // the parent has what was sent, whatever its last opening says
  // The parent took nothing any more for this round, into which it was sent; a later one is open.
  Effects not_taken(RunId run, RoundId round);
  // Which model comes from the parent just now; before offered() and committed(). With windows it is fetched to its
  // end, and trained from: else a site whose line is slow would begin anew with each window.
  void model_flows(const std::optional<round::ModelRef>& model) { flowing_ = model; }
  void run_goes_on(RunId run) { unheard_.erase(run); }
  // It goes on, and whether it asks this site or not, its end is of use here. Nobody may have told the end of others.
  void run_active(RunId run);
  Effects ask_run(RunId run);  // whether it goes on: somebody here waits for its end
  // No round of the run opens any more: work under way goes into the residual. Does nothing when heard again.
  Effects run_over(RunId run);
  Effects resolved(const Pending& pending);
  // The lease is of another history (core/round/history.h), and no parent is connected. Training under way goes into
  // the residual when it is done; nothing else of the history before is left.
  Effects history_begins();
  // With the store's present submission, and the rounds that the two histories share.
  Effects history_entered(std::optional<Pending> pending, const round::Common& common);

  // Every round that this work may enter is over, or its history is.
  bool is_given_up(WorkId work) const;
  // For whom the update of this work is being encoded; null when nobody waits for it any more.
  const Offer* to_be_sent(WorkId work) const;

  // Whether a model that is newer than the one held is of use now: with windows not while an update is being made.
  bool wants_newer() const;
  const std::optional<Pending>& pending() const { return pending_; }
  bool is_over(RunId run) const { return over_.contains(run); }
  std::string_view doing() const;  // "fetching", "training", ...; "waiting" for an outcome, or for a round
  const std::optional<round::ModelRef>& held() const { return held_; }

 private:
  enum class Stage { kFetching, kTraining, kEncoding, kFolding };
  struct Work {
    WorkId id;
    Offer offer;
    Stage stage;
    bool late = false;               // every round that it may enter closed without it
    bool missed = false;             // its own round did
    std::optional<Offer> into = {};  // the later round that it is to enter
    bool lost = false;               // the round is of an earlier history
    bool run_lost = false;           // its run is of an earlier history
    bool trained = false;            // and waits: for an outcome, or while a history is being entered
  };
  // The pending submission's next pass.
  struct PassWork {
    Offer offer;
    bool encoding = false;             // being written; else its mean is being fetched
    std::optional<Offer> then = {};    // the last one of the round that came meanwhile
    std::optional<Outcome> told = {};  // that came meanwhile
  };
  enum class Entering { kNo, kWaiting, kNow };  // another history: as soon as no write is under way
  static const Offer* goal(const Work& work);   // where its update is to go; null: nowhere at present
  bool is_coming(const Work& work) const;
  bool may_enter(const Work& work, RunId run, RoundId open) const;
  void miss(Work& work);
  void go_on(Outcome outcome, Effects& out);
  bool is_at(WorkId work, Stage stage) const;
  void close(RunId run, RoundId round);
  bool is_closed(RunId run, RoundId round) const;
  bool has_begun(const Offer& offer) const;
  void meet(Offer offer, Effects& out);
  void begin_beside(const Offer& offer, Effects& out);
  void make(Effects& out);
  void catch_up(Effects& out);
  Effects forbid(const Offer& offer, const Error& why);
  void send(Offer offer, Effects& out);
  void answer(Offer offer, Effects& out);
  static void decline_pass(const Offer& offer, Effects& out);
  bool has_state(const Offer& offer) const;
  bool is_writing() const { return resolving_ || (pass_work_ && pass_work_->encoding); }
  void fetch_for_work(Effects& out);
  void train_if_here(Effects& out);
  void fetch(const round::ModelRef& model, Effects& out);
  void start(Offer offer, Effects& out);
  void start_next(Effects& out);
  void decline(const Error& error, Effects& out);
  void resolve(Outcome outcome, Effects& out);
  void enter_if_quiet(Effects& out);
  void fold(Effects& out);
  void complete_runs(Effects& out);

  std::optional<Pending> pending_;
  std::optional<PassWork> pass_work_;
  std::optional<Digest> held_state_;
  bool resolving_ = false;
  Entering entering_ = Entering::kNo;
  std::optional<Work> work_;
  WorkId last_work_;
  std::optional<Offer> next_;
  bool may_send_next_ = false;      // it was offered since the submission was last sent
  std::uint32_t told_pending_ = 0;  // since it was offered
  std::optional<Offer> sending_;
  std::optional<round::ModelRef> held_;
  std::optional<round::ModelRef> fetched_;  // the last one that was asked for
  std::optional<round::ModelRef> flowing_;
  std::optional<round::ModelRef> newest_;  // that a commit named; with windows it is fetched when it is needed
  std::map<RunId, RoundId> closed_;        // rounds up to here are over
  std::set<RunId> ends_with_round_;        // of these an update enters its own round alone, as an opening said
  std::set<RunId> runs_;                   // that, as far as it knows, go on
  std::set<RunId> unheard_;                // of runs_, those of which nothing was heard on this session
  bool is_awaited_ = false;                // a parent has opened a round on this session
  std::set<RunId> over_;
  std::set<RunId> incomplete_;  // of over_, those with work left
};

}  // namespace fluvial::edge
