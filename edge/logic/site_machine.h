// A site's part in its rounds: fetch the model, train, encode, send, and resolve by what the commit says. A pure step
// machine. Two rules keep contributions exact (docs/design/exactly-once.md): a submission is durable before it is sent
// and stays until there is an explicit outcome for it; nothing newer is encoded before.
//
//   offered -> fetching -> training -> encoding -> pending (durable, being sent) -> resolving -> offered ...
//                                   `-> folding, when the round closed meanwhile: the update goes into the residual
//
// What an effect begins ends with an event that names it: its work, or its submission. One that comes too late does
// nothing. Each run's end counts once, and a run that is over is complete once nothing of it is in hand.
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
#include "core/round/outcome.h"
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
  std::uint64_t weight_max = 0;       // as the round has it on record; 0: not told
  bool counted = false;               // the parent's side holds this site's contribution
  std::optional<Received> received;   // of the submission whose sending was cut off
  std::vector<RunId> continues = {};  // the run before, the one before that, ...: what they left unspent is this one's
};

// A durable submission without an outcome.
struct Pending {
  RunId run;
  RoundId round;
  Digest digest{};
  Incarnation incarnation;  // that encoded it
  std::uint64_t submission = 0;
  bool operator==(const Pending&) const = default;
};

// What is made for one offer, from its training to a submission or to the residual: 1, 2, ... within a process.
using WorkId = Id<struct WorkTag>;

// What a commit says of this site. Nothing at all when it came by a way that does not know the site: then it asks.
struct Verdict {
  std::optional<Digest> counted;  // the digest that is in: this site's pending submission only if it has the same
  bool refused = false;
  bool late = false;
};

Verdict verdict_of(SiteId self, const round::ContributorSet& contributors, const std::vector<round::Refusal>& refusals,
                   const std::vector<SiteId>& late);

// What an update of this weight may claim in the round. Enrolled anew, a site may have a greater maximum than a round
// has on record that was opened before; a parent refuses what is above it.
std::uint32_t weight_to_claim(const Offer& offer, std::uint32_t weight);

// ---- effects ------------------------------------------------------------------------------------------------------
struct FetchModel {  // then model_ready(); replaces a fetch of another model
  round::ModelRef model;
};
struct Train {  // then trained() or train_failed()
  Offer offer;
  WorkId work;
};
struct Encode {  // what was trained: screen, encode, make durable; then encoded() or encode_failed()
  Offer offer;
  WorkId work;
};
struct Fold {  // what was trained goes into the residual; then folded()
  Offer offer;
  WorkId work;
  bool lost = false;      // its round is of a history before: no outcome of it is remembered
  bool run_lost = false;  // its run is: there is no residual that it could go into, it is dropped
};
struct Send {  // the pending submission; what is being sent under another lease or to another parent is given up
  Offer offer;
  std::uint64_t first_chunk = 0;  // the parent has those before it
};
struct StopSending {};
// The coordinator, for the outcome of the pending submission. An answer that gets lost is asked for again: with the
// next session, the next commit or the next opening, and whenever ask_again() is called.
struct Ask {
  Pending pending;
};
struct AskRun {  // the coordinator, whether it goes on; then run_goes_on() or run_over(). Likewise asked for again
  RunId run;
};
struct Resolve {  // durably, once; then resolved()
  Pending pending;
  Outcome outcome;
};
// Nothing is being written any more: the store may enter the other history. Then history_entered().
struct EnterHistory {};
struct DeclineRound {
  RunId run;
  RoundId round;
  AttemptId attempt;
  Error error;
};
struct CompleteRun {  // it is over, and nothing of it is in hand: what it left unspent can be looked at
  RunId run;
};
using Effect = std::variant<FetchModel, Train, Encode, Fold, Send, StopSending, Ask, AskRun, Resolve, EnterHistory,
                            DeclineRound, CompleteRun>;
using Effects = std::vector<Effect>;

class SiteMachine {
 public:
  // With what the site's store holds from before: a submission, and the runs that it took part in.
  explicit SiteMachine(std::optional<Pending> pending, std::set<RunId> runs = {})
      : pending_(pending), runs_(std::move(runs)) {
    if (pending_) runs_.insert(pending_->run);
  }

  Effects connected();           // a session to a parent is up
  Effects ask_again();           // now and then: a commit, a question or its answer may have been lost further up
  Effects offered(Offer offer);  // also again after a reconnect, or for the next attempt
  Effects model_ready(const round::ModelRef& model);
  Effects trained(WorkId work);
  Effects train_failed(WorkId work, const Error& error);
  Effects encoded(WorkId work, const Pending& pending);
  Effects encode_failed(WorkId work, const Error& error);
  Effects folded(WorkId work);
  Effects committed(RunId run, RoundId round, const Verdict& verdict, const round::ModelRef& model);
  Effects answered(const Pending& about, Outcome outcome);
  void run_goes_on(RunId run) { unheard_.erase(run); }
  // No round of it opens any more: what is being made for one goes into the residual. Heard again: nothing.
  Effects run_over(RunId run);
  Effects resolved(const Pending& pending);
  // The lease is of another history (core/round/history.h), and no parent is connected. What is being trained goes into
  // the residual when it is done; nothing else of the history before is left.
  Effects history_begins();
  // With what the store holds now, and what the two histories share.
  Effects history_entered(std::optional<Pending> pending, const round::Common& common);

  bool has_pending() const { return pending_.has_value(); }
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
    bool late = false;      // the round closed without it
    bool lost = false;      // the round is of a history before
    bool run_lost = false;  // its run is
    bool trained = false;   // while a history is being entered
  };
  enum class Entering { kNo, kWaiting, kNow };  // another history: once nothing is being written
  bool is_at(WorkId work, Stage stage) const;
  void close(RunId run, RoundId round);
  bool is_closed(RunId run, RoundId round) const;
  void send(Offer offer, Effects& out);
  void fetch(const round::ModelRef& model, Effects& out);
  void start(Offer offer, Effects& out);
  void start_next(Effects& out);
  void decline(const Error& error, Effects& out);
  void resolve(Outcome outcome, Effects& out);
  void enter_if_quiet(Effects& out);
  void fold(Effects& out);
  void complete_runs(Effects& out);

  std::optional<Pending> pending_;
  bool resolving_ = false;
  Entering entering_ = Entering::kNo;
  std::optional<Work> work_;
  WorkId last_work_;
  std::optional<Offer> next_;
  std::optional<Offer> sending_;
  std::optional<round::ModelRef> held_;
  std::optional<round::ModelRef> fetched_;  // the last one that was asked for
  std::map<RunId, RoundId> closed_;         // rounds up to here are over
  std::set<RunId> runs_;                    // that this site took part in, as far as it knows not over
  std::set<RunId> unheard_;                 // of them, those of which nothing came on this session
  std::set<RunId> over_;
  std::set<RunId> incomplete_;  // of them, those of which something is in hand
};

}  // namespace fluvial::edge
