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
  missed_before_.clear();
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

std::map<SiteId, round::Refusal> RunMachine::refused_before() const {
  std::map<SiteId, round::Refusal> refused = refused_before_;
  if (!passes_.empty()) refused.insert(shut_out_.begin(), shut_out_.end());  // else the gather has them
  return refused;
}

std::optional<std::uint32_t> RunMachine::missed_pass(SiteId site) const {
  const auto found = missed_before_.find(site);
  return found == missed_before_.end() ? std::nullopt : std::optional(found->second);
}

// Only who was in the pass before can give to this one, so nobody takes the place of who does not. Who is missing may
// still come: an aggregator closes at its own deadline, and a vector has to come down first.
bool RunMachine::is_pass_lost() const {
  if (passes_.empty()) return false;
  const std::size_t awaited = gather_.awaited_count();  // of many sites it is cheaper than those who are missing
  if (awaited > 0 && gather_.held().size() + awaited >= plan_.quorum) return false;
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
  for (round::Refusal& refusal : gather_.refusals()) refused_before_.emplace(refusal.site, std::move(refusal));
  for (const SiteId site : gather_.late()) missed_before_.emplace(site, static_cast<std::uint32_t>(passes_.size()));
  passes_.push_back({gather_.held(), mean});
  gather_ = round::Gather(participants_after(passes_.back().contributors));
  gather_.know(marks_);
  phase_ = Phase::kOpen;
  opened_at_ = now;
  soft_ = now + soft_time_of_pass();
  hard_ = now + plan_.hard_deadline;
  Effects out;
  timer_ = soft_;
  if (!is_pass_lost()) out = {OpenRound{}, SetTimer{soft_}};  // else the next attempt follows at once
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

// Who was out before the last pass is in no list of that one.
void RunMachine::complete_commit() {
  if (pass_values_.size() < 2) return;
  commit_.passes = passes_;
  commit_.epoch = attempt_.epoch;
  std::map<SiteId, round::Refusal> refused = refused_before();
  std::erase_if(refused, [this](const auto& entry) { return commit_.contributors.contains(entry.first); });
  for (round::Refusal& refusal : commit_.refusals) refused.insert_or_assign(refusal.site, std::move(refusal));
  commit_.late.clear();
  for (const round::Participant& one : attempt_.participants) {
    if (!refused.contains(one.site) && !commit_.contributors.contains(one.site)) commit_.late.push_back(one.site);
  }
  commit_.refusals.clear();
  for (auto& [site, refusal] : refused) commit_.refusals.push_back(std::move(refusal));
}

}  // namespace fluvial::coordinator
