// Windows, at a site (docs/design/windows.md): the next training beside a submission that waits, and which model it is
// from.
#include <utility>

#include "edge/logic/site_machine.h"

namespace fluvial::edge {

// A window in which the submission waits: the next training begins, if there is a newer model than the one that the
// submission is from. A site makes one update from each.
void SiteMachine::begin_beside(const Offer& offer, Effects& out) {
  if (!round::rolls(offer.late) || offer.run != pending_->run || offer.round <= pending_->round) return;
  if (entering_ != Entering::kNo) return;
  if (work_ && may_enter(*work_, offer.run, offer.round)) return;
  if (work_ && work_->stage != Stage::kFetching) {
    if (work_->offer.run != offer.run || work_->offer.round != offer.round) work_->late = true;
    return;
  }
  Offer next = offer;
  next.counted = false;  // what is counted is the submission
  next.received.reset();
  work_.reset();
  start(std::move(next), out);
}

// While an update is made nobody needs a newer model; not even if it is too late for every window, before it is done.
bool SiteMachine::wants_newer() const {
  const bool is_making = work_ && !over_.contains(work_->offer.run) &&
                         (work_->stage != Stage::kFetching || (!work_->late && is_coming(*work_)));
  return !is_making || !round::rolls(work_->offer.late);
}

void SiteMachine::catch_up(Effects& out) {
  const bool is_behind = newest_ && held_ != newest_ &&
                         (!fetched_ || (fetched_->run == newest_->run && fetched_->version < newest_->version));
  if (is_behind && wants_newer()) fetch(*newest_, out);
}

bool SiteMachine::is_coming(const Work& work) const {
  return work.stage == Stage::kFetching && round::rolls(work.offer.late) && flowing_ == work.offer.base;
}

// What was on its way when the present round opened was let go on, and went nowhere.
Effects SiteMachine::not_taken(RunId run, RoundId round) {
  Effects out;
  const bool ours =
      pending_ && !resolving_ && sending_ && sending_->run == run && round < sending_->round && sending_->late;
  if (!ours) return out;
  if (!next_) next_ = sending_;
  may_send_next_ = true;
  out.push_back(Ask{*pending_});
  return out;
}

}  // namespace fluvial::edge
