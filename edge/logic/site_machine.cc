#include "edge/logic/site_machine.h"

#include <algorithm>
#include <utility>

#include "core/base/format.h"
#include "edge/logic/run_ends.h"

namespace fluvial::edge {

Status check_weights(const std::vector<std::uint64_t>& weights, std::uint64_t weight_max) {
  const std::uint64_t most = weight_max == 0 ? round::kWeightLimit - 1 : weight_max;
  std::uint64_t total = 0;
  for (const std::uint64_t weight : weights) {
    if (weight > most - total) {
      return Error{
          Code::kPermissionDenied,
          format_text("samples: a worker has {}, others of the site {}, and all together may have {}, as the "
                      "site's token says (weight_max): give samples=n/1000 at all sites, or enrol this one with "
                      "a token of a greater --weight-max",
                      weight, total, most)};
    }
    total += weight;
  }
  return {};
}

namespace {

// Offers of one round may differ in attempt, lease and who holds what. An offer with another base or plan is another
// round, whatever its number: what is being made for one round fits into no other.
bool is_same_round(const Offer& a, const Offer& b) {
  return a.run == b.run && a.round == b.round && a.base == b.base && a.plan == b.plan;
}

// Whether what was made for this round may be sent in answer to the offer of a later one.
bool enters(RunId run, RoundId round, const Offer& offer) {
  return run == offer.run && offer.late && round::may_enter(*offer.late, round, offer.round);
}

}  // namespace

std::string_view SiteMachine::doing() const {
  if (resolving_) return "resolving";
  if (pass_work_) return pass_work_->encoding ? "encoding" : "fetching";
  if (!work_) return "waiting";
  switch (work_->stage) {
    case Stage::kFetching: return "fetching";
    case Stage::kTraining: return work_->trained ? "waiting" : "training";
    case Stage::kEncoding: return "encoding";
    case Stage::kFolding: return "folding";
  }
  return "unknown";
}

Verdict verdict_of(SiteId self, const round::ContributorSet& contributors, const std::vector<round::Refusal>& refusals,
                   const std::vector<SiteId>& late) {
  Verdict verdict;
  if (const round::Contribution* own = contributors.find(self)) verdict.counted = own->digest;
  const auto refusal = std::ranges::find(refusals, self, &round::Refusal::site);
  verdict.refused = refusal != refusals.end() && round::drops_update(refusal->error.code);
  if (verdict.refused && refusal->own != RoundId()) verdict.refused_own = refusal->own;
  if (verdict.refused) verdict.reason = refusal->error.message;
  verdict.late = (refusal != refusals.end() && !verdict.refused) || std::ranges::find(late, self) != late.end();
  return verdict;
}

std::string reason_of(SiteId self, const std::vector<round::Refusal>& refusals) {
  const auto refusal = std::ranges::find(refusals, self, &round::Refusal::site);
  return refusal == refusals.end() ? "the coordinator gives no reason" : refusal->error.message;
}

// The site must ask what happened while it was away.
Effects SiteMachine::connected() {
  unheard_ = runs_;
  is_awaited_ = false;
  return ask_again();
}

Effects SiteMachine::ask_again() {
  Effects out;
  if (pending_ && !resolving_) out.push_back(Ask{*pending_});
  for (const RunId run : unheard_) out.push_back(AskRun{run});
  return out;
}

void SiteMachine::run_active(RunId run) {
  if (runs_.size() < kActiveRunsMax && runs_.insert(run).second) unheard_ = runs_;
  unheard_.erase(run);
}

Effects SiteMachine::ask_run(RunId run) {
  if (runs_.size() >= kActiveRunsMax || !runs_.insert(run).second) return {};
  unheard_.insert(run);
  return {AskRun{run}};
}

Effects SiteMachine::run_over(RunId run) {
  Effects out;
  runs_.erase(run);
  unheard_.erase(run);
  if (!over_.insert(run).second) return out;
  incomplete_.insert(run);
  if (pending_ && !resolving_ && pending_->run == run) out.push_back(Ask{*pending_});
  if (next_ && next_->run == run) next_.reset();
  if (work_ && work_->offer.run == run) {
    work_->late = true;
    if (work_->stage == Stage::kFetching) start_next(out);
  }
  catch_up(out);
  complete_runs(out);
  return out;
}

void SiteMachine::complete_runs(Effects& out) {
  std::erase_if(incomplete_, [&](RunId run) {
    const bool in_hand = (work_ && work_->offer.run == run) || (pending_ && pending_->run == run);
    if (!in_hand) out.push_back(CompleteRun{run});
    return !in_hand;
  });
}

void SiteMachine::close(RunId run, RoundId round) {
  RoundId& closed = closed_[run];
  closed = std::max(closed, round);
}

bool SiteMachine::is_closed(RunId run, RoundId round) const {
  const auto found = closed_.find(run);
  return found != closed_.end() && round <= found->second;
}

Effects SiteMachine::offered(Offer offer, const std::optional<Error>& forbidden) {
  Effects out;
  runs_.insert(offer.run);
  over_.erase(offer.run);
  incomplete_.erase(offer.run);
  unheard_.erase(offer.run);
  is_awaited_ = true;
  if (offer.late) {
    ends_with_round_.erase(offer.run);
  } else {
    ends_with_round_.insert(offer.run);
  }
  if (is_closed(offer.run, offer.round)) return out;  // overtaken by its commit, or by a newer offer
  if (offer.round > RoundId(0)) close(offer.run, RoundId(offer.round.value() - 1));  // rounds follow each other
  if (forbidden && !offer.counted && !has_begun(offer)) return forbid(offer, *forbidden);
  if (pending_) {
    if (pending_->run == offer.run && pending_->round == offer.round) {
      if (!offer.counted && !resolving_) answer(std::move(offer), out);
      return out;
    }
    next_ = std::move(offer);  // asked first: the commit that named it may have been lost
    may_send_next_ = true;
    told_pending_ = 0;
    if (!resolving_) out.push_back(Ask{*pending_});
    if (!forbidden) begin_beside(*next_, out);
    return out;
  }
  meet(std::move(offer), out);
  return out;
}

void SiteMachine::meet(Offer offer, Effects& out) {
  if (offer.pass_index() > 0) return decline_pass(offer, out);
  if (work_) {
    if (!work_->lost && is_same_round(work_->offer, offer)) {
      work_->offer = std::move(offer);  // the next attempt, or another lease
      if (work_->stage != Stage::kFolding) work_->late = work_->missed = false;
      work_->into.reset();
      next_.reset();
      if (work_->stage == Stage::kFetching) {
        fetch_for_work(out);  // a parent that lacked it when asked has it by now
      }
    } else if (enters(work_->offer.run, work_->offer.round, offer) && may_enter(*work_, offer.run, offer.round)) {
      miss(*work_);
      if (!offer.counted) work_->into = std::move(offer);
    } else {
      work_->late = true;
      next_ = std::move(offer);
      if (work_->stage == Stage::kFetching) start_next(out);
    }
    return;
  }
  start(std::move(offer), out);
}

const Offer* SiteMachine::goal(const Work& work) {
  if (work.late || work.lost) return nullptr;
  if (work.into) return &*work.into;
  return work.missed ? nullptr : &work.offer;
}

// Whether the update of this work can enter the round: as its own opening said.
bool SiteMachine::may_enter(const Work& work, RunId run, RoundId open) const {
  const bool is_made = work.stage == Stage::kTraining || work.stage == Stage::kEncoding || is_coming(work);
  return is_made && !work.late && !work.lost && work.offer.run == run && work.offer.late &&
         round::may_enter(*work.offer.late, work.offer.round, open);
}

// A window takes what was sent into one shortly before it.
void SiteMachine::miss(Work& work) {
  if (round::rolls(work.offer.late)) return;
  work.missed = true;
  work.into.reset();
}

bool SiteMachine::has_begun(const Offer& offer) const {
  if (pending_ && enters(pending_->run, pending_->round, offer)) return true;
  if (work_ && enters(work_->offer.run, work_->offer.round, offer) && may_enter(*work_, offer.run, offer.round)) {
    return true;
  }
  if (pending_) return pending_->run == offer.run && pending_->round == offer.round;
  return work_ && !work_->lost && work_->stage != Stage::kFetching && is_same_round(work_->offer, offer);
}

// What is in hand is of a round before, and ends as if this one had been begun.
Effects SiteMachine::forbid(const Offer& offer, const Error& why) {
  Effects out;
  next_.reset();
  out.push_back(DeclineRound{offer.run, offer.round, offer.attempt, why});
  if (pending_ && !resolving_) out.push_back(Ask{*pending_});
  if (!work_) return out;
  if (work_->stage == Stage::kFetching) {
    work_.reset();
  } else {
    work_->late = true;
  }
  return out;
}

void SiteMachine::send(Offer offer, Effects& out) {
  const std::optional<Received>& received = offer.received;
  const Pending::Number number = pending_->number_of(offer.pass_index());
  const bool goes_on = received && received->incarnation == number.incarnation &&
                       received->number == number.submission && number.submission != 0;
  const std::uint64_t first_chunk = goes_on ? received->chunks : 0;
  sending_ = std::move(offer);
  out.push_back(Send{*sending_, first_chunk});
}

void SiteMachine::start(Offer offer, Effects& out) {
  if (offer.counted) return;  // counted for an incarnation whose state is lost: there is nothing to do but wait
  if (offer.pass_index() > 0) return decline_pass(offer, out);
  last_work_ = last_work_.next();
  work_ = Work{last_work_, std::move(offer), Stage::kFetching};
  train_if_here(out);
  if (work_->stage == Stage::kFetching) fetch_for_work(out);
}

void SiteMachine::fetch(const round::ModelRef& model, Effects& out) {
  fetched_ = model;
  out.push_back(FetchModel{model});
}

void SiteMachine::start_next(Effects& out) {
  work_.reset();
  if (next_ && !pending_) start(*std::exchange(next_, std::nullopt), out);  // else the submission is to enter it
  catch_up(out);
}

Effects SiteMachine::model_ready(const round::ModelRef& model) {
  Effects out;
  held_ = model;
  train_if_here(out);
  return out;
}

bool SiteMachine::is_at(WorkId work, Stage stage) const { return work_ && work_->id == work && work_->stage == stage; }

bool SiteMachine::is_given_up(WorkId work) const {
  return !work_ || work_->id != work || work_->late || work_->lost || entering_ != Entering::kNo;
}

const Offer* SiteMachine::to_be_sent(WorkId work) const {
  return is_at(work, Stage::kEncoding) && entering_ == Entering::kNo ? goal(*work_) : nullptr;
}

Effects SiteMachine::trained(WorkId work) {
  Effects out;
  if (!is_at(work, Stage::kTraining)) return out;
  work_->trained = true;
  if (entering_ == Entering::kNo && !pending_) make(out);
  return out;
}

// Of what is trained, an update or the residual.
void SiteMachine::make(Effects& out) {
  if (work_->late) return fold(out);
  work_->stage = Stage::kEncoding;
  out.push_back(Encode{work_->offer, work_->id});
}

// Declines the attempt that was offered last, although the work may have begun in an earlier one.
void SiteMachine::decline(const Error& error, Effects& out) {
  if (const Offer* const awaited = goal(*work_); awaited != nullptr && !pending_) {
    out.push_back(DeclineRound{awaited->run, awaited->round, awaited->attempt, error});
  }
  start_next(out);
}

void SiteMachine::fold(Effects& out) {
  work_->stage = Stage::kFolding;
  out.push_back(Fold{work_->offer, work_->id, work_->lost, work_->run_lost});
}

Effects SiteMachine::train_failed(WorkId work, const Error& error) {
  Effects out;
  if (!is_at(work, Stage::kTraining)) return out;
  decline(error, out);
  complete_runs(out);
  return out;
}

Effects SiteMachine::encoded(WorkId work, const Pending& pending) {
  Effects out;
  if (!is_at(work, Stage::kEncoding)) return out;
  FLUVIAL_CHECK(!pending_, "a second submission");
  Work done = *std::exchange(work_, std::nullopt);
  pending_ = pending;
  if (done.late) {
    resolve(Outcome::kLate, out);
  } else if (const Offer* const to = goal(done); to != nullptr && is_awaited_) {  // else its opening comes again
    Offer now = *to;
    now.received.reset();  // it was true when the round was opened, and chunks were sent since
    send(std::move(now), out);
  }
  catch_up(out);
  enter_if_quiet(out);
  return out;
}

Effects SiteMachine::encode_failed(WorkId work, const Error& error) {
  Effects out;
  if (!is_at(work, Stage::kEncoding)) return out;
  decline(error, out);
  complete_runs(out);
  enter_if_quiet(out);
  return out;
}

Effects SiteMachine::folded(WorkId work) {
  Effects out;
  if (!is_at(work, Stage::kFolding)) return out;
  start_next(out);
  complete_runs(out);
  enter_if_quiet(out);
  return out;
}

Effects SiteMachine::committed(RunId run, RoundId round, const Verdict& verdict, const round::ModelRef& model) {
  Effects out;
  unheard_.erase(run);
  const bool told_before = is_closed(run, round);
  close(run, round);
  const bool older = fetched_ && fetched_->run == model.run && fetched_->version > model.version;
  if (!older) newest_ = model;
  if (!older && held_ != model && wants_newer()) fetch(model, out);
  const bool named = pending_ && pending_->run == run && verdict.counted && *verdict.counted == pending_->digest;
  if (named && !resolving_ && pending_->round <= round) {
    resolve(Outcome::kCounted, out);  // in its own round or in a later one
  } else if (pending_ && !resolving_ && pending_->run == run && pending_->round == round) {
    if (verdict.refused && verdict.refused_own.value_or(round) == round) {
      resolve(Outcome::kRefused, out);
    } else if (verdict.late || (verdict.counted && ends_with_round_.contains(run))) {  // an earlier incarnation's
      resolve(Outcome::kLate, out);
    } else {
      out.push_back(Ask{*pending_});
    }
  } else if (pending_ && !resolving_ && !told_before) {
    out.push_back(Ask{*pending_});  // of an earlier round: the commit that named it, or the answer, was lost
  }
  if (work_ && may_enter(*work_, run, round.next())) {
    if (!work_->into || work_->into->round <= round) miss(*work_);
  } else if (work_ && work_->offer.run == run && work_->offer.round <= round) {
    work_->late = true;
    if (work_->stage == Stage::kFetching) start_next(out);
  }
  if (next_ && next_->run == run && next_->round <= round) next_.reset();
  return out;
}

Effects SiteMachine::answered(const Pending& about, Outcome outcome) {
  Effects out;
  const bool ours = pending_ && !resolving_ && pending_->run == about.run && pending_->round == about.round &&
                    pending_->digest == about.digest;
  if (ours) go_on(outcome, out);
  return out;
}

void SiteMachine::taken(RunId run) {
  if (pending_ && pending_->run == run && next_ && next_->run == run) next_->counted = true;
}

Effects SiteMachine::turned_away(RunId run, RoundId round) {
  Effects out;
  const bool is_earlier = sending_ && sending_->late && round < sending_->round;
  const bool ours =
      pending_ && !resolving_ && sending_ && sending_->run == run && (sending_->round == round || is_earlier);
  if (ours && (pending_->round < round || is_earlier)) out.push_back(Ask{*pending_});
  return out;
}

// Pending, and a later round is open: it enters that, or the round need not wait for this site. One such answer may be
// older than the opening.
void SiteMachine::go_on(Outcome outcome, Effects& out) {
  if (outcome != Outcome::kPending) {
    // It was sent into a later round, which may be open. Either that decided it and is over, its commit late or lost;
    // or the answer by which it was sent was older than the outcome, and the round, which takes it no more, need not
    // wait.
    if (sending_ && sending_->round > pending_->round && !is_closed(sending_->run, sending_->round)) {
      const Error why{Code::kFailedPrecondition, "it has sent what was decided in an earlier round"};
      out.push_back(DeclineRound{sending_->run, sending_->round, sending_->attempt, why});
      if (next_ && next_->run == sending_->run && next_->round == sending_->round) next_.reset();
    }
    return resolve(outcome, out);
  }
  if (!next_ || next_->run != pending_->run || next_->round <= pending_->round || next_->counted) return;
  if (enters(pending_->run, pending_->round, *next_)) {
    if (std::exchange(may_send_next_, false)) send(*next_, out);
    return;
  }
  if (++told_pending_ < 2) {
    out.push_back(Ask{*pending_});
    return;
  }
  const Error why{Code::kFailedPrecondition, "its update of round " + std::to_string(pending_->round.value()) +
                                                 " has no outcome yet, and its parent takes none of an earlier round"};
  out.push_back(DeclineRound{next_->run, next_->round, next_->attempt, why});
  next_.reset();
}

void SiteMachine::resolve(Outcome outcome, Effects& out) {
  close(pending_->run, pending_->round);
  if (sending_) out.push_back(StopSending{});
  sending_.reset();
  resolving_ = true;
  if (pass_work_ && pass_work_->encoding) {
    pass_work_->told = outcome;  // it is being written
    return;
  }
  pass_work_.reset();
  out.push_back(Resolve{*pending_, outcome});
}

Effects SiteMachine::resolved(const Pending& pending) {
  Effects out;
  if (!resolving_ || pending_ != pending) return out;
  resolving_ = false;
  pending_.reset();
  if (!work_) {
    start_next(out);
  } else {
    if (next_) meet(*std::exchange(next_, std::nullopt), out);
    if (work_ && work_->trained && work_->stage == Stage::kTraining && entering_ == Entering::kNo) make(out);
  }
  complete_runs(out);
  enter_if_quiet(out);
  return out;
}

Effects SiteMachine::history_begins() {
  Effects out;
  next_.reset();
  if (work_ && work_->stage == Stage::kFetching) work_.reset();
  entering_ = Entering::kWaiting;
  enter_if_quiet(out);
  return out;
}

// Encoding, folding and resolving that began in the history before also end in it.
void SiteMachine::enter_if_quiet(Effects& out) {
  if (entering_ != Entering::kWaiting || is_writing() || (work_ && work_->stage != Stage::kTraining)) return;
  entering_ = Entering::kNow;
  out.push_back(EnterHistory{});
}

Effects SiteMachine::history_entered(std::optional<Pending> pending, const round::Common& common) {
  Effects out;
  FLUVIAL_CHECK(entering_ == Entering::kNow, "a history nobody asked for");
  entering_ = Entering::kNo;
  pending_ = pending;
  pass_work_.reset();
  sending_.reset();
  fetched_.reset();
  newest_.reset();
  closed_.clear();
  ends_with_round_.clear();
  over_.clear();  // a run that was over may go on
  incomplete_.clear();
  std::erase_if(runs_, [&](RunId run) { return !common.has(run); });  // nobody could tell whether they go on
  unheard_.clear();
  if (!work_) return out;
  work_->late = work_->lost = true;
  work_->run_lost = work_->run_lost || !common.has(work_->offer.run);
  if (work_->trained && !pending_) fold(out);
  return out;
}

}  // namespace fluvial::edge
