// Windows (docs/design/windows.md): one goes over into the next, with what is staged, summed or on its way.
#include <algorithm>

#include "aggregator/logic/region_machine.h"

namespace fluvial::aggregator {
namespace {

// But for what a schedule gives the workers of one round.
bool is_same_plan(round::Plan a, round::Plan b) {
  a.worker = b.worker = {};
  return a == b;
}

}  // namespace

// An update by its base, a partial by what it says of each contribution: that is looked at when it comes.
bool RegionMachine::takes(RunId run, RoundId round, bool is_update) const {
  if (!open_ || run != open_->run) return false;
  if (round == open_->round) return true;
  const bool goes_over = is_update ? open_->subject.late.has_value() : has_windows();
  if (!goes_over || round == RoundId(0) || round > open_->round) return false;
  const round::Lateness& late = *open_->subject.late;
  return open_->round.value() - round.value() <= std::max(late.drift_max, late.staleness_max);
}

// Sums of another scale do not go together, and nothing does that is of another shape or codec.
bool RegionMachine::goes_over(const Opening& opening) const {
  return open_ && open_->subject.late && opening.subject.late && has_windows() == round::rolls(opening.subject.late) &&
         opening.run == open_->run && opening.round > open_->round &&
         (!has_windows() || opening.scale_bits == open_->scale_bits) &&
         is_same_plan(opening.subject.plan, open_->subject.plan) &&
         opening.subject.value_count == open_->subject.value_count &&
         opening.subject.integer_count == open_->subject.integer_count &&
         opening.subject.late->factors == open_->subject.late->factors;
}

// What was admitted in an earlier window, by the rule of the present one, and at its scale.
Status RegionMachine::check_goes_over(const round::Arrival& what) const {
  if (!has_windows()) return {};
  if (what.scale_bits && *what.scale_bits != open_->scale_bits) {
    return Error{Code::kStale, "a sum of another scale than this window's"};
  }
  return round::check_versions(what.contributors, open_->subject.base.version, &*open_->subject.late);
}

// Who was refused or missing is awaited again. What can no longer enter, and whoever takes no part any more, leaves.
void RegionMachine::go_over(const Opening& opening, Effects& out) {
  gather_.next_attempt();
  // An update that can never be used is its site's until the root has said so.
  drop_reports(out, [](Code code) { return !round::drops_update(code); });
  for (const round::Refusal& refusal : unreported_) gather_.refuse(refusal);
  const auto say_round = [this](round::Refusal& refusal) { refusal.own = refusal.own_round(open_->round); };
  std::ranges::for_each(unreported_, say_round);  // they stay those of the window before
  if (sent_) std::ranges::for_each(sent_->refusals, say_round);
  std::set<SiteId> gone = opening.gone;
  std::set<SiteId> stay;
  for (const round::Participant& participant : opening.participants) stay.insert(participant.site);
  for (const round::Participant& before : gather_.participants()) {
    if (!stay.contains(before.site)) gone.insert(before.site);
  }
  void_.merge(gather_.update(opening.participants, gone));
  open_->round = opening.round;
  open_->subject = opening.subject;
  for (const auto& [arrival, staged] : staged_) {
    if (check_goes_over({staged.contributors, {}, {}}).ok()) continue;
    for (const auto& [site, entry] : staged.contributors.entries()) void_.insert(site);
  }
}

// Sums are of one round, and so is whatever a child says of its part.
void RegionMachine::drop_partials(Effects& out) {
  std::erase_if(staged_, [&](const auto& one) {
    if (one.second.is_update) return false;
    const bool is_taken = one.second.stage == Stage::kTaken;
    out.push_back(is_taken ? Effect(Release{one.first}) : Drop{one.first, {Code::kStale, "the round is closed"}});
    return true;
  });
}

Effects RegionMachine::committed(const round::ContributorSet& counted) {
  Effects out;
  if (!open_) return out;
  if (!std::exchange(is_over_, true)) attendance_.closed(gather_);
  sent_.reset();
  send_again_.reset();
  drop_partials(out);
  for (auto entry = staged_.begin(); entry != staged_.end();) {
    const round::Contribution& own = entry->second.contributors.entries().begin()->second;
    const round::Contribution* const in = counted.find(own.site);
    if (in != nullptr && in->digest == own.digest) {
      out.push_back(Release{entry->first});
      entry = staged_.erase(entry);
    } else {
      entry++->second.stage = Stage::kQueued;
    }
  }
  return out;
}

// The next round without windows: each update that is here is admitted anew, on its model. What was counted of them,
// where this node has not heard the commit, the root says.
void RegionMachine::carry_over(const Opening& opening, Effects& out) {
  if (!is_over_) attendance_.closed(gather_);
  drop_partials(out);
  sent_.reset();
  send_again_.reset();
  void_.clear();
  unreported_.clear();
  spoilt_ = false;
  gather_ = round::Gather(opening.participants);
  out.push_back(ResetSum{opening.scale_bits});
  const ModelVersion base = opening.subject.base.version;
  for (auto entry = staged_.begin(); entry != staged_.end();) {
    auto& [arrival, staged] = *entry;
    staged.contributors.admitted_on(base);
    Status admitted = gather_.admit(staged.contributors);
    if (admitted.ok()) admitted = round::check_versions(staged.contributors, base, &*opening.subject.late);
    if (admitted.ok() && opening.counted.contains(staged.contributors.entries().begin()->first)) {
      admitted = Error{Code::kStale, "the parent has it"};
    }
    if (!admitted.ok()) {
      out.push_back(Drop{arrival, admitted.error()});
      entry = staged_.erase(entry);
      continue;
    }
    gather_.begin_take(staged.contributors);
    staged.stage = Stage::kTaking;
    out.push_back(Take{arrival, base});
    ++entry;
  }
}

void RegionMachine::note_shares() {
  if (!has_windows()) return shares_.clear();
  const ModelVersion base = open_->subject.base.version;
  std::map<SiteId, std::uint32_t>& named = shares_[{open_->run, base}];
  for (const round::Participant& one : open_->participants) named[one.site] = one.share;
  std::erase_if(shares_, [&](const auto& window) {
    const auto& [run, version] = window.first;
    return run != open_->run || version > base || base.value() - version.value() > open_->subject.late->drift_max;
  });
}

std::vector<SiteId> RegionMachine::miscounted(const round::ContributorSet& contributors) const {
  std::vector<SiteId> wrong;
  if (!open_) return wrong;
  for (const auto& [site, entry] : contributors.entries()) {
    std::uint32_t share = has_windows() ? entry.share : round::kWholeFactor;
    if (const auto window = shares_.find({open_->run, entry.admitted}); window != shares_.end()) {
      const auto named = window->second.find(site);
      if (named != window->second.end()) share = named->second;
    }
    if (share != entry.share) wrong.push_back(site);
  }
  return wrong;
}

// Else one child's word would turn away what others brought, together with its own, at the root.
Status RegionMachine::check_shares(const round::ContributorSet& contributors) const {
  const std::vector<SiteId> wrong = miscounted(contributors);
  if (wrong.empty()) return {};
  return Error{Code::kStale, "site " + std::to_string(wrong.front().value()) +
                                 " counts for another share than it had when it was admitted"};
}

// The parent has gone over into a window that takes the partial no more: its sites are asked again.
bool RegionMachine::give_up_sent() {
  if (!has_windows() || sent_round_ == open_->round) return false;
  for (const auto& [site, entry] : sent_->contributors.entries()) void_.insert(site);
  recall();
  return true;
}

}  // namespace fluvial::aggregator
