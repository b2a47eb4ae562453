// Rounds with several passes (docs/design/phases.md): a pass closes as a round does, and its mean opens the next one.
#include <algorithm>

#include "coordinator/logic/run_machine.h"

namespace fluvial::coordinator {

std::optional<round::Pass> RunMachine::pass() const {
  if (pass_values_.empty()) return std::nullopt;
  round::Pass pass{.index = static_cast<std::uint32_t>(passes_.size()),
                   .count = static_cast<std::uint32_t>(pass_values_.size()),
                   .value_count = pass_values_[passes_.size()]};
  if (!passes_.empty()) pass.mean = passes_.back().mean;
  pass.state = codec_state_;
  return pass;
}

round::Pass RunMachine::pass_after(const round::VectorRef& mean) const {
  round::Pass next = *pass();
  FLUVIAL_CHECK(!next.is_last(), "a pass after the last one");
  ++next.index;
  next.value_count = pass_values_[next.index];
  next.mean = mean;
  return next;
}

void RunMachine::begin_passes() {
  passes_.clear();
  refused_before_.clear();
  lost_early_ = false;
}

void RunMachine::close_pass(TimePoint now, Effects& out) {
  if (passes_.empty()) first_pass_ = now - opened_at_;
  phase_ = Phase::kReducing;
  out.push_back(Reduce{next_step(), static_cast<std::uint32_t>(passes_.size()), gather_.held()});
}

// Nobody waits a second time for who was missing, and what one gives to a pass it gave to those before.
std::vector<round::Participant> RunMachine::participants_after(const round::ContributorSet& contributors) const {
  std::vector<round::Participant> participants;
  for (const round::Participant& one : attempt_.participants) {
    if (contributors.contains(one.site) && !shut_out_.contains(one.site)) participants.push_back(one);
  }
  return participants;
}

std::vector<round::Refusal> RunMachine::refused_before() const {
  std::vector<round::Refusal> refused = refused_before_;
  if (passes_.empty()) return refused;  // the gather has them
  for (const auto& [site, refusal] : shut_out_) {
    if (std::ranges::find(refused, site, &round::Refusal::site) == refused.end()) refused.push_back(refusal);
  }
  return refused;
}

std::optional<std::uint32_t> RunMachine::missed_pass(SiteId site) const {
  const auto& all = attempt_.participants;
  if (gather_.is_participant(site) || std::ranges::find(all, site, &round::Participant::site) == all.end()) return {};
  if (std::ranges::find(refused_before_, site, &round::Refusal::site) != refused_before_.end()) return {};
  for (std::uint32_t pass = 0; pass < passes_.size(); ++pass) {
    if (!passes_[pass].contributors.contains(site)) return pass;
  }
  return {};
}

// Only who was in the pass before can give to this one, so nobody takes the place of who does not. Who is missing may
// still come: an aggregator closes at its own deadline, and a vector has to come down first.
bool RunMachine::is_pass_lost() const {
  if (passes_.empty()) return false;
  const std::size_t may_come = gather_.late().size();
  return may_come == 0 || gather_.held().size() + may_come < plan_.quorum;
}

// Who has not come in this attempt. A later pass that ends before its hard deadline was lost by others than those who
// may still come.
std::set<SiteId> RunMachine::absent() const {
  std::set<SiteId> sites;
  for (const round::Participant& one : attempt_.participants) {
    if (!gather_.is_counted(one.site)) sites.insert(one.site);
  }
  if (!lost_early_) return sites;
  for (const SiteId site : gather_.late()) sites.erase(site);
  return sites;
}

// There is nothing left to train, and who is awaited was in time before.
Duration RunMachine::soft_time_of_pass() const {
  const Duration most = plan_.soft_deadline;
  // In a later attempt the sites have trained already: what its first pass took says nothing of an encoding.
  if (!plan_.adaptive_deadlines || attempt_.attempt != AttemptId(1)) return most;
  return std::min(most, std::max<Duration>(plan_.soft_deadline_min, first_pass_ * 3 / 2));
}

Effects RunMachine::reduced(Step step, const round::VectorRef& mean, TimePoint now) {
  if (phase_ != Phase::kReducing || !awaits(step)) return {};
  for (round::Refusal& refusal : gather_.refusals()) refused_before_.push_back(std::move(refusal));
  passes_.push_back({gather_.held(), mean});
  gather_ = round::Gather(participants_after(passes_.back().contributors));
  gather_.know(marks_);
  phase_ = Phase::kOpen;
  opened_at_ = now;
  soft_ = now + soft_time_of_pass();
  hard_ = now + plan_.hard_deadline;
  Effects out;
  if (!is_pass_lost()) out = {OpenRound{}, SetTimer{soft_}};  // else the next attempt follows at once
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

// Who was out before the last pass is in no list of that one.
void RunMachine::complete_commit() {
  if (pass_values_.empty()) return;
  commit_.passes = passes_;
  commit_.epoch = attempt_.epoch;
  for (round::Refusal& refusal : refused_before()) {
    const auto is_known = std::ranges::find(commit_.refusals, refusal.site, &round::Refusal::site);
    if (is_known == commit_.refusals.end() && !commit_.contributors.contains(refusal.site)) {
      commit_.refusals.push_back(std::move(refusal));
    }
  }
  std::ranges::sort(commit_.refusals, {}, &round::Refusal::site);
  commit_.late.clear();
  for (const round::Participant& one : attempt_.participants) {
    const bool is_refused =
        std::ranges::find(commit_.refusals, one.site, &round::Refusal::site) != commit_.refusals.end();
    if (!is_refused && !commit_.contributors.contains(one.site)) commit_.late.push_back(one.site);
  }
}

}  // namespace fluvial::coordinator
