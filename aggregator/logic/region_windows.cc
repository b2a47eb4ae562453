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
bool RegionMachine::takes(RunId run, RoundId round) const {
  if (!open_ || run != open_->run) return false;
  if (round == open_->round) return true;
  if (!has_windows() || round == RoundId(0) || round > open_->round) return false;
  const round::Lateness& late = *open_->subject.late;
  return open_->round.value() - round.value() <= std::max(late.drift_max, late.staleness_max);
}

// Sums of another scale, or of another shape or codec, do not go together.
bool RegionMachine::goes_over(const Opening& opening) const {
  return has_windows() && round::rolls(opening.subject.late) && opening.run == open_->run &&
         opening.round > open_->round && opening.scale_bits == open_->scale_bits &&
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
