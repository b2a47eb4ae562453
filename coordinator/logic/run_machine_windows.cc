// Windows (docs/design/windows.md): a round that commits at a goal, and goes over into the next.
#include <algorithm>

#include "coordinator/logic/run_machine.h"
#include "core/aggregate/scale.h"
#include "core/round/window_goal.h"

namespace fluvial::coordinator {

bool RunMachine::has_goal() const {
  if (!round::is_async(plan_)) return false;
  return gather_.held().size() >= round::window_goal(plan_.async_goal, gather_.participant_count());
}

bool RunMachine::is_closing() const {
  const bool closing = phase_ == Phase::kFinalising || phase_ == Phase::kFinalised || phase_ == Phase::kCommitting;
  return (closing && late_is_next(plan_)) || (phase_ == Phase::kIdle && goes_over_);
}

// An update by its base, a partial by what it says of each contribution: that is looked at when it comes.
bool RunMachine::takes(RoundId round, bool is_update) const {
  const RoundId open = last_committed_.next();
  if (round == open) return true;
  if (!(is_update ? late_is_next(plan_) : round::is_async(plan_))) return false;
  const std::uint64_t drift = round::is_async(plan_) ? plan_.async_drift_max : 0;
  const std::uint64_t most = std::max<std::uint64_t>(drift, plan_.staleness_max);
  return round > RoundId(0) && round < open && open.value() - round.value() <= most;
}

// A sum enters no round but its own, unless rounds are windows.
bool RunMachine::may_wait(const round::Arrival& what) const {
  return round::is_async(plan_) || (!what.contributors.empty() && !what.scale_bits);
}

// What was admitted in an earlier round, by the rule of the present one, and at its scale.
Status RunMachine::check_goes_over(const round::Arrival& what) const {
  if (!late_is_next(plan_)) return {};
  if (what.scale_bits && *what.scale_bits != attempt_.scale_bits) {
    return Error{Code::kStale, "a sum of another scale than this round's"};
  }
  const std::optional<round::Lateness> rule = lateness();
  return round::check_versions(what.contributors, attempt_.base.version, &*rule);
}

// Nobody sends a factor that was not named.
Status RunMachine::check_shares(const round::ContributorSet& contributors) const {
  const std::vector<SiteId> wrong = miscounted(contributors);
  if (wrong.empty()) return {};
  return Error{Code::kStale, "site " + std::to_string(wrong.front().value()) +
                                 " counts for another share than it had when it was admitted, or its parent is of a "
                                 "version that knows of no shares"};
}

std::uint32_t RunMachine::share_of(SiteId site) const {
  return round::is_fair(plan_) ? rates_.share(site) : round::kWholeFactor;
}

std::vector<SiteId> RunMachine::miscounted(const round::ContributorSet& contributors) const {
  std::vector<SiteId> wrong;
  for (const auto& [site, entry] : contributors.entries()) {
    const std::optional<std::uint32_t> share =
        round::is_fair(plan_) ? rates_.share(site, entry.admitted) : round::kWholeFactor;
    if (share != entry.share) wrong.push_back(site);
  }
  return wrong;
}

bool RunMachine::is_waiting(const round::ContributorSet& contributors) const {
  return std::ranges::any_of(waiting_,
                             [&](const auto& one) { return !one.second.contributors.overlap(contributors).empty(); });
}

// One may come of an update that was decided rounds ago: its site may have its outcome already, and what it makes now
// is another.
void RunMachine::refuse(const round::Refusal& refusal) {
  const auto mark = marks_.find(refusal.site);
  const bool is_decided = mark != marks_.end() && refusal.own != RoundId() && refusal.own <= mark->second;
  if (is_decided) return;
  gather_.refuse(refusal);
}

// In a window with the age that it came with; in a round it is admitted on the model of this one.
void RunMachine::offer_waiting(Effects& out) {
  std::optional<ModelVersion> anew;
  if (!round::is_async(plan_)) anew = attempt_.base.version;
  for (auto& [arrival, what] : std::exchange(waiting_, {})) {
    if (anew) what.contributors.admitted_on(*anew);
    take_in(arrival, what, anew, out);
  }
}

void RunMachine::drop_waiting(const std::string& why, Effects& out) {
  for (const auto& [arrival, what] : std::exchange(waiting_, {})) {
    out.push_back(Drop{arrival, {Code::kStale, why}});
  }
}

// Sums go over from one window into the next only at one scale, so it stays as long as there is room.
Result<int> RunMachine::scale_for(std::uint64_t weight_sum, int before) const {
  const bool stays = round::is_async(plan_) && before >= round::kFactorBits &&
                     aggregate::has_room(plan_.value_abs_max, before, weight_sum);
  return stays ? Result<int>(before) : aggregate::scale_for(plan_, weight_sum);
}

// Stale synchronous parallel (Ho et al. 2013): a site that comes begins where the slowest one is, and one that is gone
// holds nobody up.
void RunMachine::note_leads() {
  const std::map<SiteId, round::Lot> sites = lots();
  std::erase_if(leads_, [&](const auto& one) { return !sites.contains(one.first); });
  const auto slowest = std::ranges::min_element(leads_, {}, [](const auto& one) { return one.second; });
  const std::uint64_t least = slowest == leads_.end() ? 0 : slowest->second;
  for (const auto& [site, lot] : sites) leads_.try_emplace(site, least);
}

void RunMachine::note_heard() {
  for (const auto& [site, entry] : commit_.contributors.entries()) {
    if (const auto lead = leads_.find(site); lead != leads_.end()) ++lead->second;
  }
  note_refused(commit_.refusals);
}

// Whoever declines, or is refused, is not slow.
void RunMachine::note_refused(const std::vector<round::Refusal>& refusals) {
  for (const round::Refusal& refusal : refusals) {
    if (const auto lead = leads_.find(refusal.site); lead != leads_.end()) ++lead->second;
  }
}

std::set<SiteId> RunMachine::too_far_ahead() const {
  std::set<SiteId> sites;
  if (!round::is_async(plan_) || plan_.async_lead_max == 0 || leads_.empty()) return sites;
  const auto slowest = std::ranges::min_element(leads_, {}, [](const auto& one) { return one.second; });
  for (const auto& [site, lead] : leads_) {
    if (lead - slowest->second > plan_.async_lead_max) sites.insert(site);
  }
  return sites;
}

// The bound gives way to the quorum: without it nothing would ever be committed.
void RunMachine::keep_quorum(const std::set<SiteId>& drawn, std::set<SiteId>* without) const {
  const auto is_enough = [&] {
    std::uint64_t count = 0, weight = 0;
    for (const SiteId site : drawn) {
      if (without->contains(site)) continue;
      ++count;
      weight += connected_.at(site).weight_max;
    }
    return count > 0 && count >= plan_.quorum && weight >= plan_.weight_min;
  };
  while (!without->empty() && !is_enough()) {
    without->erase(*std::ranges::min_element(
        *without, {}, [this](SiteId site) { return std::pair(leads_.at(site), connected_.at(site).name_key); }));
  }
}

}  // namespace fluvial::coordinator
