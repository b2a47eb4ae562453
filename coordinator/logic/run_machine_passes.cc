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
}

void RunMachine::close_pass(TimePoint now, Effects& out) {
  if (passes_.empty()) first_pass_ = now - opened_at_;
  phase_ = Phase::kReducing;
  out.push_back(Reduce{next_step(), static_cast<std::uint32_t>(passes_.size()), gather_.held()});
}

// Nobody waits a second time for who was missing, and what one gives to a pass it gave to those before.
std::vector<round::Participant> RunMachine::participants_of_pass() const {
  std::vector<round::Participant> participants;
  for (const round::Participant& one : attempt_.participants) {
    if (passes_.back().contributors.contains(one.site) && !shut_out_.contains(one.site)) participants.push_back(one);
  }
  return participants;
}

// There is nothing left to train, and who is awaited was in time before.
Duration RunMachine::soft_time_of_pass() const {
  const Duration most = plan_.soft_deadline;
  if (!plan_.adaptive_deadlines) return most;
  return std::min(most, std::max<Duration>(plan_.soft_deadline_min, first_pass_ * 3 / 2));
}

Effects RunMachine::reduced(Step step, const round::VectorRef& mean, TimePoint now) {
  if (phase_ != Phase::kReducing || !awaits(step)) return {};
  for (round::Refusal& refusal : gather_.refusals()) refused_before_.push_back(std::move(refusal));
  passes_.push_back({gather_.held(), mean});
  gather_ = round::Gather(participants_of_pass());
  gather_.know(marks_);
  phase_ = Phase::kOpen;
  opened_at_ = now;
  soft_ = now + soft_time_of_pass();
  hard_ = now + plan_.hard_deadline;
  Effects out{OpenRound{}, SetTimer{soft_}};
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

// Who was out before the last pass is in no list of that one.
void RunMachine::complete_commit() {
  if (pass_values_.empty()) return;
  commit_.passes = passes_;
  commit_.refusals.insert(commit_.refusals.end(), refused_before_.begin(), refused_before_.end());
  std::ranges::sort(commit_.refusals, {}, &round::Refusal::site);
  commit_.late.clear();
  for (const round::Participant& one : attempt_.participants) {
    const bool is_refused =
        std::ranges::find(commit_.refusals, one.site, &round::Refusal::site) != commit_.refusals.end();
    if (!is_refused && !commit_.contributors.contains(one.site)) commit_.late.push_back(one.site);
  }
}

}  // namespace fluvial::coordinator
