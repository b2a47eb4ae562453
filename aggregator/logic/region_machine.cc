#include "aggregator/logic/region_machine.h"

#include <algorithm>
#include <utility>

namespace fluvial::aggregator {
namespace {

constexpr Duration kSendAgainAfter = std::chrono::seconds(1);

}  // namespace

Effects RegionMachine::opened(Opening opening, TimePoint now) {
  Effects out;
  bool is_lost = true;  // a partial on its way
  // At another scale nothing held here merges with the parent's sum: it is asked for again, as in another round.
  const bool same_round = open_ && open_->run == opening.run && open_->round == opening.round &&
                          open_->scale_bits == opening.scale_bits && open_->subject == opening.subject;
  if (!same_round && goes_over(opening) && !has_windows()) {
    carry_over(opening, out);
  } else if (!same_round && goes_over(opening)) {
    is_lost = opening.epoch != open_->epoch || !opening.same_session || send_again_ || turned_away_;
    if (sent_ && opening.epoch != open_->epoch) sent_->sequence = ++sequence_;
    go_over(opening, out);
  } else if (!same_round) {
    out = closed();
    gather_ = round::Gather(opening.participants);
    out.push_back(ResetSum{opening.scale_bits});
  } else {
    if (opening.attempt != open_->attempt) {
      gather_.next_attempt();
      drop_reports(out, [](Code code) { return code != Code::kConflict; });
    }
    // In a window an attempt asks again whom it has not heard; what is on its way is not begun anew.
    const bool same_attempt = opening.attempt == open_->attempt || has_windows();
    const bool same_terms = same_attempt && opening.epoch == open_->epoch;
    if (sent_ && !same_terms) sent_->sequence = ++sequence_;  // an earlier answer is not for this partial
    is_lost = !same_terms || !opening.same_session || (has_windows() && (send_again_ || turned_away_));
    void_.merge(gather_.update(opening.participants, opening.gone));
  }
  const bool is_anew = !same_round || opening.attempt != open_->attempt;
  open_ = std::move(opening);
  if (is_anew) gather_.mark_missing(attendance_.unexpected(open_->participants));
  is_over_ = false;
  note_shares();
  reported_ = false;
  reconcile(out);
  refuse_denied();
  out.push_back(OpenRound{});
  out.push_back(SetTimer{open_->deadline});
  if (sent_) {
    if (is_lost) send(out);
  } else {
    settle(now, out);
  }
  return out;
}

// The next attempt asks refused sites again and waits for missing ones, so reports of the last attempt must not count
// in this one. Queued partials without contributors are dropped, too: their senders report again. That a site
// contradicts itself stays true.
void RegionMachine::drop_reports(Effects& out, bool (*is_dropped)(Code)) {
  const auto is_over = [&](const round::Refusal& refusal) { return is_dropped(refusal.error.code); };
  if (sent_ && sent_->contributors.empty()) recall();
  if (sent_) std::erase_if(sent_->refusals, is_over);
  std::erase_if(unreported_, is_over);
  std::erase_if(staged_, [&](const auto& entry) {
    if (entry.second.stage != Stage::kQueued || !entry.second.contributors.empty()) return false;
    out.push_back(Drop{entry.first, {Code::kStale, "of an earlier attempt"}});
    return true;
  });
}

// Brings this node's gather and sum in line with what the parent's side holds.
void RegionMachine::reconcile(Effects& out) {
  above_ = open_->counted;
  const auto& held = gather_.held().entries();
  const bool all_counted = std::ranges::all_of(held, [&](const auto& e) { return above_.contains(e.first); });
  if (sent_ && !held.empty() && all_counted) {
    accepted(out);  // the receipt was lost, not the partial
  }
  for (const auto& [arrival, staged] : staged_) {
    for (const auto& [site, entry] : staged.contributors.entries()) {
      if (above_.contains(site)) void_.insert(site);
    }
  }
  if (!void_.empty()) recall();
  gather_.mark_above(above_);
}

// The parent holds all of the sum: the sum starts again at zero, and the arrivals that waited are added.
void RegionMachine::accepted(Effects& out) {
  for (const auto& [site, entry] : gather_.held().entries()) {
    above_.insert(site);
    void_.erase(site);
  }
  gather_.move_held_above();
  sent_.reset();
  out.push_back(ResetSum{open_->scale_bits});
  for (auto entry = staged_.begin(); entry != staged_.end();) {
    if (entry->second.stage == Stage::kTaken) {
      out.push_back(Release{entry->first});
      entry = staged_.erase(entry);
    } else {
      entry->second.stage = Stage::kTaking;
      out.push_back(Take{entry->first});
      ++entry;
    }
  }
}

// The partial on its way is no longer wanted; its reports are kept.
void RegionMachine::recall() {
  if (!sent_) return;
  for (const round::Refusal& refusal : sent_->refusals) report(refusal);
  sent_.reset();
  send_again_.reset();
}

bool RegionMachine::is_taking() const {
  return std::ranges::any_of(staged_, [](const auto& entry) { return entry.second.stage == Stage::kTaking; });
}

void RegionMachine::settle(TimePoint now, Effects& out) {
  if (is_over_) return;
  const bool in_sum = std::ranges::any_of(staged_, [&](const auto& entry) {
    const auto& sites = entry.second.contributors.entries();
    return std::ranges::any_of(sites, [&](const auto& one) { return void_.contains(one.first); });
  });
  if (in_sum || spoilt_) {
    if (is_taking()) return;  // taken() comes back here
    reseal(out);
  } else if (!void_.empty()) {
    void_.clear();
    gather_.mark_above(above_);
  }
  if (!sent_) take_queued(out);
  try_close(now, out);
}

// Takes the arrivals that waited for a partial which is no longer on its way and was not accepted either.
void RegionMachine::take_queued(Effects& out) {
  for (auto& [arrival, staged] : staged_) {
    if (staged.stage != Stage::kQueued) continue;
    staged.stage = Stage::kTaking;
    out.push_back(Take{arrival});
  }
}

// Reports a site once: the parent refuses a list that names a site twice. A conflict replaces any other refusal, but no
// conflict that is shown.
void RegionMachine::report(const round::Refusal& refusal) {
  const auto said = std::ranges::find(unreported_, refusal.site, &round::Refusal::site);
  if (said == unreported_.end()) {
    unreported_.push_back(refusal);
  } else if (refusal.error.code == Code::kConflict && said->proof.empty()) {
    *said = refusal;
  }
}

// Makes the sum again from the staged arrivals, without the sites that have to leave it.
void RegionMachine::reseal(Effects& out) {
  const std::set<SiteId> without = std::exchange(void_, {});
  spoilt_ = false;
  gather_.forget_held();
  gather_.mark_above(above_);
  out.push_back(ResetSum{open_->scale_bits});
  bool others_dropped = false;
  for (auto entry = staged_.begin(); entry != staged_.end();) {
    auto& [arrival, staged] = *entry;
    const auto& sites = staged.contributors.entries();
    const bool stays = std::ranges::none_of(sites, [&](const auto& e) { return without.contains(e.first); });
    const Status admitted = gather_.admit(staged.contributors);
    if (stays && admitted.ok()) {
      gather_.begin_take(staged.contributors);
      staged.stage = Stage::kTaking;
      out.push_back(Take{arrival});
      ++entry;
      continue;
    }
    others_dropped =
        others_dropped || std::ranges::any_of(sites, [&](const auto& e) { return !above_.contains(e.first); });
    if (staged.stage == Stage::kTaken) {
      out.push_back(Release{arrival});  // its sender heard that it was taken; the opening tells it who is not counted
    } else {
      out.push_back(Drop{arrival, admitted.ok() ? Error{Code::kStale, "a contributor has moved"} : admitted.error()});
    }
    entry = staged_.erase(entry);
  }
  if (others_dropped) out.push_back(OpenRound{});
}

Status RegionMachine::admit(SiteId site, Epoch lease, std::uint64_t weight) const {
  if (!open_) return Error{Code::kStale, "no round is open"};
  return gather_.admit(site, lease, weight);
}

Status RegionMachine::admit(RoundId round, AttemptId attempt, Epoch epoch, const round::ContributorSet& partial) const {
  const bool is_earlier = open_ && round < open_->round && takes(open_->run, round, /*is_update=*/false);
  if (is_over_) return Error{Code::kStale, "the round is closed"};
  if (is_earlier) FLUVIAL_TRY(check_goes_over({partial, {}, {}}));
  if (open_) FLUVIAL_TRY(check_shares(partial));
  if (!open_ || (attempt != open_->attempt && !has_windows()) || epoch != open_->epoch) {
    return Error{Code::kStale, "attempt " + std::to_string(attempt.value()) + " of epoch " +
                                   std::to_string(epoch.value()) + " is not the open one"};
  }
  return gather_.admit(partial);
}

Effects RegionMachine::arrived(ArrivalId arrival, const round::Arrival& what, TimePoint now) {
  Effects out;
  Status admitted = open_ ? gather_.admit(what.contributors) : Error{Code::kStale, "the round is closed"};
  if (admitted.ok()) admitted = check_goes_over(what);
  if (admitted.ok()) admitted = check_shares(what.contributors);
  if (admitted.ok() && is_over_ && (what.contributors.empty() || what.scale_bits)) {
    admitted = Error{Code::kStale, "the round is closed"};
  }
  if (!admitted.ok()) {
    out.push_back(Drop{arrival, admitted.error()});
    return out;
  }
  for (const round::Refusal& refusal : what.refusals) {
    gather_.refuse(refusal);
    report(refusal);
  }
  gather_.mark_missing(what.missing);
  gather_.begin_take(what.contributors);
  const bool waits = sent_ || !void_.empty() || spoilt_ || is_over_;
  const bool is_update = !what.contributors.empty() && !what.scale_bits;
  staged_.emplace(arrival, Staged{what.contributors, waits ? Stage::kQueued : Stage::kTaking, is_update});
  if (!waits) out.push_back(Take{arrival});
  try_close(now, out);
  return out;
}

Effects RegionMachine::taken(ArrivalId arrival, const round::ContributorSet& with_probes, TimePoint now) {
  Effects out;
  const auto found = staged_.find(arrival);
  if (found == staged_.end() || found->second.stage != Stage::kTaking) return out;
  found->second.stage = Stage::kTaken;
  gather_.finish_take(with_probes);
  if (found->second.contributors.empty()) {  // it brought only names: the sum can be made again without it
    staged_.erase(found);
    out.push_back(Release{arrival});
  }
  settle(now, out);
  return out;
}

Effects RegionMachine::take_failed(ArrivalId arrival, const Error& error, TimePoint now) {
  Effects out;
  const auto found = staged_.find(arrival);
  if (found == staged_.end() || found->second.stage != Stage::kTaking) return out;
  gather_.abandon_take(found->second.contributors, error);
  for (const auto& [site, entry] : found->second.contributors.entries()) report({site, error, entry.own_round({})});
  staged_.erase(found);
  spoilt_ = true;
  out.push_back(Drop{arrival, error});
  settle(now, out);
  return out;
}

Effects RegionMachine::refused(const round::Refusal& refusal, TimePoint now) {
  Effects out;
  if (!open_ || !gather_.is_participant(refusal.site)) return out;
  gather_.refuse(refusal);
  report(refusal);
  try_close(now, out);
  return out;
}

Effects RegionMachine::declined(AttemptId attempt, const round::Refusal& refusal, TimePoint now) {
  if (!open_ || (attempt != AttemptId(0) && attempt != open_->attempt)) return {};
  return refused(refusal, now);
}

Effects RegionMachine::denied(std::set<SiteId> sites, TimePoint now) {
  denied_ = std::move(sites);
  refuse_denied();
  Effects out;
  try_close(now, out);
  return out;
}

// What is in already stays in, as at the root. The code drops no update: once enrolled again, the site brings its work.
void RegionMachine::refuse_denied() {
  for (const SiteId site : gather_.awaited()) {
    if (!denied_.contains(site)) continue;
    const round::Refusal refusal{site, {Code::kUnauthenticated, "the coordinator refuses this site from now on"}};
    gather_.refuse(refusal);
    report(refusal);
  }
}

Effects RegionMachine::tick(TimePoint now) {
  Effects out;
  if (sent_ && send_again_ && now >= *send_again_) send(out);
  settle(now, out);
  return out;
}

void RegionMachine::try_close(TimePoint now, Effects& out) {
  if (!open_ || is_over_ || sent_ || !void_.empty() || spoilt_ || !gather_.quiet()) return;
  const bool is_over = gather_.settled() || now >= open_->deadline;
  if (!is_over && !(has_windows() && !gather_.held().empty())) return;
  if (gather_.held().empty() && unreported_.empty() && (reported_ || has_windows())) return;
  sent_ = SendPartial{++sequence_, gather_.held(), std::exchange(unreported_, {}), {}};
  sealed_in_ = open_->round;
  send(out);
  reported_ = is_over;
}

void RegionMachine::send(Effects& out) {
  send_again_.reset();
  turned_away_ = false;
  if (!has_windows()) sent_->missing = gather_.late();  // including sites that a child closed without
  sent_round_ = open_->round;
  reported_ = true;
  out.push_back(*sent_);
}

Effects RegionMachine::receipt(std::uint64_t sequence, const Status& status, const std::vector<SiteId>& without,
                               TimePoint now) {
  Effects out;
  if (!open_ || !sent_ || sent_->sequence != sequence) return out;
  if (status.ok()) {
    accepted(out);
  } else if (!without.empty()) {
    // Of what was summed for a window before, they may be decided and not in: then they are wanted in this one.
    const bool may_be_decided = has_windows() && sealed_in_ < open_->round;
    if (!may_be_decided) above_.insert(without.begin(), without.end());
    void_.insert(without.begin(), without.end());
    recall();
  } else if (status.error().code == Code::kStale) {
    if (!give_up_sent()) {
      turned_away_ = true;
      return out;  // an Opening follows
    }
  } else if (status.error().code == Code::kResourceExhausted || status.error().code == Code::kUnavailable) {
    send_again_ = now + kSendAgainAfter;  // the parent has no room now, its disk failed, or it wants the whole partial
    out.push_back(SetTimer{*send_again_});
    return out;
  } else {
    refuse_held(status.error(), out);
  }
  settle(now, out);
  return out;
}

// The parent will never take this sum, for no single site's fault: these sites are out for this attempt.
void RegionMachine::refuse_held(const Error& error, Effects& out) {
  std::vector<SiteId> sites;
  for (const auto& [site, entry] : gather_.held().entries()) sites.push_back(site);
  recall();
  std::erase_if(staged_, [&](const auto& entry) {
    if (entry.second.stage != Stage::kTaken) return false;
    out.push_back(Release{entry.first});
    return true;
  });
  gather_.forget_held();
  gather_.mark_above(above_);
  for (const SiteId site : sites) {
    const round::Refusal refusal{site, {Code::kInternal, "its region's sum was refused: " + error.message}};
    gather_.refuse(refusal);
    report(refusal);
  }
  out.push_back(ResetSum{open_->scale_bits});
  for (auto& [arrival, staged] : staged_) {
    if (!gather_.admit(staged.contributors).ok()) continue;
    gather_.begin_take(staged.contributors);
    staged.stage = Stage::kTaking;
    out.push_back(Take{arrival});
  }
}

void RegionMachine::heard(SiteId site) {
  if (attendance_.heard(site)) gather_.await(site);
}

void RegionMachine::has_workers(SiteId site, bool any) {
  if (attendance_.has_workers(site, any)) gather_.await(site);
}

Effects RegionMachine::closed() {
  Effects out;
  if (!is_over_ && !has_windows()) attendance_.closed(gather_);
  for (const auto& [arrival, staged] : staged_) {
    if (staged.stage == Stage::kTaken) {
      out.push_back(Release{arrival});
    } else {
      out.push_back(Drop{arrival, {Code::kStale, "the round is closed"}});
    }
  }
  staged_.clear();
  above_.clear();
  void_.clear();
  spoilt_ = false;
  unreported_.clear();
  sent_.reset();
  send_again_.reset();
  open_.reset();
  gather_ = {};
  reported_ = is_over_ = false;
  return out;
}

}  // namespace fluvial::aggregator
