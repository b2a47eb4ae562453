// Late is next: what a commit leaves to the rounds after it.
#include <algorithm>

#include "coordinator/logic/run_machine.h"

namespace fluvial::coordinator {

std::vector<SiteId> holding_an_update(const std::vector<round::Refusal>& refusals) {
  std::vector<SiteId> sites;
  for (const auto& [site, error, own, proof] : refusals) {
    if (error.code == Code::kStale || error.code == Code::kResourceExhausted) sites.push_back(site);
  }
  return sites;
}

// With `late = "next"` a site that was late takes part, whether it is drawn or not: it may hold an update that only the
// next rounds can take.
std::vector<round::Participant> RunMachine::participants_of(const std::vector<SiteId>& drawn) const {
  std::set<SiteId> all(drawn.begin(), drawn.end());
  for (const auto& [site, missed] : missed_) {
    const bool may_enter = last_committed_.next().value() - missed.value() <= plan_.staleness_max;
    if (may_enter && connected_.contains(site) && !is_too_heavy(site)) all.insert(site);
  }
  if (round::is_async(plan_)) {  // also of those that missed one
    std::set<SiteId> ahead = too_far_ahead();
    keep_quorum(all, &ahead);
    for (const SiteId site : ahead) all.erase(site);
  }
  std::vector<round::Participant> participants;
  for (const SiteId site : all) {
    participants.push_back(participant_of(site, connected_.at(site)));
  }
  return participants;
}

round::Participant RunMachine::participant_of(SiteId site, const SiteInfo& info) const {
  return {site, info.lease, info.weight_max, share_of(site)};
}

// Weight times factor must be exact in fp64: a site that may claim more takes no part.
bool RunMachine::is_too_heavy(const SiteInfo& info) const {
  return late_is_next(plan_) && info.weight_max >= round::kStaleWeightLimit;
}

bool RunMachine::is_too_heavy(SiteId site) const {
  const auto found = connected_.find(site);
  return found != connected_.end() && is_too_heavy(found->second);
}

std::map<SiteId, round::Lot> RunMachine::lots() const {
  std::map<SiteId, round::Lot> lots;
  for (const auto& [site, info] : connected_) {
    if (is_too_heavy(info)) continue;
    const bool comes = attendance_.of(site) == round::Expected::kYes;
    lots[site] = {comes ? pace_.sample_weight(site) : round::kSampleWeightMin, info.name_key};
  }
  return lots;
}

// Of a commit, for the rounds after it.
void RunMachine::note_counted() {
  if (!late_is_next(plan_)) return;
  for (const auto& [site, entry] : commit_.contributors.entries()) {
    missed_.erase(site);
    decide(site, entry.own_round(commit_.round));
  }
  note_heard();
  if (round::is_fair(plan_)) {
    rates_.committed(ModelVersion(commit_.round.value()), commit_.contributors, lateness()->factors);
  }
  for (const SiteId site : commit_.late) missed_.try_emplace(site, commit_.round);
  for (const round::Refusal& refusal : commit_.refusals) {
    if (round::drops_update(refusal.error.code)) {
      missed_.erase(refusal.site);
      decide(refusal.site, refusal.own_round(commit_.round));
    }
  }
  for (const SiteId site : holding_an_update(commit_.refusals)) missed_.try_emplace(site, commit_.round);
  std::erase_if(missed_,
                [this](const auto& one) { return commit_.round.value() - one.second.value() >= plan_.staleness_max; });
  earlier_.insert(earlier_.begin(), model_);
  if (earlier_.size() > plan_.staleness_max) earlier_.resize(plan_.staleness_max);
}

void RunMachine::decide(SiteId site, RoundId own) {
  RoundId& mark = marks_[site];
  mark = std::max(mark, own);
}

void RunMachine::begin_gather() {
  gather_ = round::Gather(attempt_.participants);
  gather_.know(marks_);
}

}  // namespace fluvial::coordinator
