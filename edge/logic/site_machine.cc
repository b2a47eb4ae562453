#include "edge/logic/site_machine.h"

#include <utility>

namespace fluvial::edge {

std::string_view outcome_name(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPending: return "pending";
    case Outcome::kCounted: return "counted";
    case Outcome::kLate: return "late";
    case Outcome::kRefused: return "refused";
  }
  return "unknown";
}

Effects SiteMachine::connected() {
  Effects out;
  if (pending_ && !resolving_) out.push_back(Ask{*pending_});
  return out;
}

Effects SiteMachine::offered(Offer offer) {
  Effects out;
  if (offer.run == closed_run_ && offer.round <= closed_) return out;  // overtaken by its commit
  if (pending_) {
    if (pending_->run == offer.run && pending_->round == offer.round && !resolving_) {
      if (!offer.counted) {
        sending_ = std::move(offer);
        out.push_back(Send{*sending_});
      }
      return out;
    }
    next_ = std::move(offer);
    if (!resolving_) out.push_back(Ask{*pending_});
    return out;
  }
  if (work_) {
    if (work_->offer.run == offer.run && work_->offer.round == offer.round) {
      work_->offer = std::move(offer);  // the next attempt, or another lease
    } else {
      work_->late = true;
      next_ = std::move(offer);
      if (work_->stage == Stage::kFetching) start_next(out);
    }
    return out;
  }
  start(std::move(offer), out);
  return out;
}

void SiteMachine::start(Offer offer, Effects& out) {
  if (offer.counted) return;  // a contribution of an incarnation whose state is gone: nothing to do but wait
  const bool here = held_ == offer.base;
  work_ = Work{std::move(offer), here ? Stage::kTraining : Stage::kFetching};
  if (here) {
    out.push_back(Train{work_->offer});
  } else {
    out.push_back(FetchModel{work_->offer.base});
  }
}

void SiteMachine::start_next(Effects& out) {
  work_.reset();
  if (next_) start(*std::exchange(next_, std::nullopt), out);
}

Effects SiteMachine::model_ready(const round::ModelRef& model) {
  Effects out;
  held_ = model;
  if (work_ && work_->stage == Stage::kFetching && work_->offer.base == model) {
    work_->stage = Stage::kTraining;
    out.push_back(Train{work_->offer});
  }
  return out;
}

Effects SiteMachine::trained() {
  Effects out;
  if (!work_ || work_->stage != Stage::kTraining) return out;
  work_->stage = work_->late ? Stage::kFolding : Stage::kEncoding;
  if (work_->late) {
    out.push_back(Fold{work_->offer});
  } else {
    out.push_back(Encode{work_->offer});
  }
  return out;
}

Effects SiteMachine::train_failed(const Error& error) {
  Effects out;
  if (!work_ || work_->stage != Stage::kTraining) return out;
  if (!work_->late) out.push_back(DeclineRound{work_->offer.run, work_->offer.round, error});
  start_next(out);
  return out;
}

Effects SiteMachine::encoded(const Pending& pending) {
  Effects out;
  FLUVIAL_CHECK(work_ && work_->stage == Stage::kEncoding && !pending_, "a submission nobody asked for");
  const Work work = *std::exchange(work_, std::nullopt);
  pending_ = pending;
  if (work.late) {
    resolve(Outcome::kLate, out);
  } else {
    sending_ = work.offer;
    out.push_back(Send{*sending_});
  }
  return out;
}

Effects SiteMachine::encode_failed(const Error& error) {
  Effects out;
  if (!work_ || work_->stage != Stage::kEncoding) return out;
  if (!work_->late) out.push_back(DeclineRound{work_->offer.run, work_->offer.round, error});
  start_next(out);
  return out;
}

Effects SiteMachine::committed(RunId run, RoundId round, const Verdict& verdict, const round::ModelRef& model) {
  Effects out;
  if (run == closed_run_ && round <= closed_) return out;
  closed_run_ = run;
  closed_ = round;
  if (held_ != model) out.push_back(FetchModel{model});
  if (pending_ && !resolving_ && pending_->run == run && pending_->round == round) {
    const bool named = verdict.counted && *verdict.counted == pending_->digest;
    if (named) {
      resolve(Outcome::kCounted, out);
    } else if (verdict.refused) {
      resolve(Outcome::kRefused, out);
    } else if (verdict.late || verdict.counted) {  // counted with other bytes: those of an incarnation before
      resolve(Outcome::kLate, out);
    } else {
      out.push_back(Ask{*pending_});
    }
  } else if (pending_ && !resolving_) {
    out.push_back(Ask{*pending_});  // of a round before: the commit that named it, or the answer, was lost
  }
  if (work_ && work_->offer.run == run && work_->offer.round <= round) {
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
  if (ours && outcome != Outcome::kPending) resolve(outcome, out);
  return out;
}

void SiteMachine::resolve(Outcome outcome, Effects& out) {
  if (sending_) out.push_back(StopSending{});
  sending_.reset();
  resolving_ = true;
  out.push_back(Resolve{*pending_, outcome});
}

Effects SiteMachine::resolved() {
  Effects out;
  if (resolving_) {
    resolving_ = false;
    pending_.reset();
    if (!work_) start_next(out);
  } else if (work_ && work_->stage == Stage::kFolding) {
    start_next(out);
  }
  return out;
}

}  // namespace fluvial::edge
