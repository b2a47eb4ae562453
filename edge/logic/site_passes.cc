// Rounds with several passes (docs/design/phases.md): what a site sends in a later one it makes of its pending
// submission and of the mean that comes down, once for each attempt's mean.
#include <utility>

#include "edge/logic/site_machine.h"

namespace fluvial::edge {

bool SiteMachine::has_state(const Offer& offer) const {
  return !offer.pass || !offer.pass->state || held_state_ == offer.pass->state->digest;
}

void SiteMachine::fetch_for_work(Effects& out) {
  if (held_ != work_->offer.base) fetch(work_->offer.base, out);
  if (!has_state(work_->offer)) out.push_back(FetchState{work_->offer});
}

void SiteMachine::train_if_here(Effects& out) {
  if (!work_ || work_->stage != Stage::kFetching || held_ != work_->offer.base || !has_state(work_->offer)) return;
  work_->stage = Stage::kTraining;
  out.push_back(Train{work_->offer, work_->id});
}

Effects SiteMachine::state_ready(const Digest& state) {
  Effects out;
  held_state_ = state;
  train_if_here(out);
  return out;
}

// It is named in the pass because something of an earlier incarnation is in the one before.
void SiteMachine::decline_pass(const Offer& offer, Effects& out) {
  if (offer.counted) return;
  const Error why{Code::kFailedPrecondition, "nothing of its first pass is here"};
  out.push_back(DeclineRound{offer.run, offer.round, offer.attempt, why});
}

// An offer of the pending submission's own round: what it asks for is here, or is made.
void SiteMachine::answer(Offer offer, Effects& out) {
  if (pass_work_ && pass_work_->encoding) {
    pass_work_->then = std::move(offer);
    return;
  }
  pass_work_.reset();
  if (offer.pass_index() == 0 || pending_->from == offer.pass->made_from()) return send(std::move(offer), out);
  if (sending_) out.push_back(StopSending{});  // what it sends is of a pass that is over
  sending_.reset();
  pass_work_ = PassWork{std::move(offer)};
  out.push_back(FetchMean{pass_work_->offer});
}

Effects SiteMachine::mean_ready(const Digest& mean) {
  Effects out;
  if (!pass_work_ || pass_work_->encoding || pass_work_->offer.pass->mean->digest != mean) return out;
  if (entering_ != Entering::kNo) return out;
  pass_work_->encoding = true;
  out.push_back(EncodePass{pass_work_->offer, *pending_});
  return out;
}

Effects SiteMachine::pass_encoded(const Pending& pending) {
  Effects out;
  if (!pass_work_ || !pass_work_->encoding) return out;
  FLUVIAL_CHECK(pending_ && pending_->run == pending.run && pending_->round == pending.round,
                "a pass of another round");
  pending_ = pending;
  PassWork done = *std::exchange(pass_work_, std::nullopt);
  if (done.told) {
    out.push_back(Resolve{*pending_, *done.told});
  } else if (done.then) {
    answer(*std::move(done.then), out);
  } else if (is_awaited_) {
    done.offer.received.reset();  // of what was sent before
    send(std::move(done.offer), out);
  }
  enter_if_quiet(out);
  return out;
}

// What it has made stays as it was, and is late unless it is asked for again: whatever failed here, the parent must not
// take it for an update that is no good (round::drops_update()).
Effects SiteMachine::pass_failed(const Error& error) {
  Effects out;
  if (!pass_work_ || !pass_work_->encoding) return out;
  PassWork failed = *std::exchange(pass_work_, std::nullopt);
  if (failed.told) {
    out.push_back(Resolve{*pending_, *failed.told});
  } else {
    out.push_back(DeclineRound{failed.offer.run, failed.offer.round, failed.offer.attempt,
                               Error{Code::kFailedPrecondition, error.message}});
    if (failed.then && failed.then->attempt != failed.offer.attempt) answer(*std::move(failed.then), out);
  }
  enter_if_quiet(out);
  return out;
}

}  // namespace fluvial::edge
