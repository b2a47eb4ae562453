// The run's status, and a person's commands.
#include <utility>

#include "coordinator/logic/pause_cause.h"
#include "coordinator/logic/run_machine.h"

namespace fluvial::coordinator {

void RunMachine::halt(RunStatus status, std::string reason, Effects& out) {
  halt(StatusStep{status, std::move(reason)}, out);
}

void RunMachine::halt(StatusStep step, Effects& out) {
  phase_ = Phase::kHalted;
  pause_wanted_.reset();
  drop_waiting("the run halts", out);
  record_status(std::move(step), out);
}

void RunMachine::record_status(StatusStep step, Effects& out) {
  status_step_ = std::move(step);
  out.push_back(RecordStatus{next_step(), status_step_->status, status_step_->reason, status_step_->absent});
}

void RunMachine::explain(Step step, std::string reason) {
  if (status_step_ && awaits(step)) status_step_->reason = std::move(reason);
}

void RunMachine::become(RunStatus status, std::string reason, Effects& out) {
  status_ = status;
  reason_ = std::move(reason);
  out.push_back(TellStatus{status_, reason_});
}

Effects RunMachine::wish(RunStatus status, std::string reason, TimePoint now) {
  wishes_.push_back({status, std::move(reason)});
  return run_steps(now);
}

Effects RunMachine::pause(std::string reason, TimePoint now) {
  return wish(RunStatus::kPaused, std::move(reason), now);
}
Effects RunMachine::stop(std::string reason, TimePoint now) {
  return wish(RunStatus::kStopped, std::move(reason), now);
}
Effects RunMachine::resume(TimePoint now) { return wish(RunStatus::kRunning, "", now); }

void RunMachine::consider_wish(Effects& out) {
  const Wish& wish = wishes_.front();
  const bool has_ended = is_over(status_);
  const bool goes_on = status_ == RunStatus::kRunning && !pause_wanted_;
  if (has_ended && wish.status != status_) {
    out.push_back(Answer{Error{Code::kFailedPrecondition, "the run is " + std::string(run_status_name(status_)) +
                                                              ": start a run that continues it"}});
  } else if (has_ended || (goes_on && wish.status == RunStatus::kRunning)) {
    out.push_back(Answer{});
  } else {
    const bool keeps_reason = phase_ == Phase::kHalted && wish.status == RunStatus::kPaused;
    return record_status({wish.status, keeps_reason ? reason_ : wish.reason, true}, out);
  }
  wishes_.pop_front();
}

void RunMachine::obey(const StatusStep& step, Effects& out) {
  const bool is_halted = phase_ == Phase::kHalted;
  switch (step.status) {
    case RunStatus::kStopped:
      gather_ = {};
      shut_out_.clear();
      taking_.clear();
      drop_waiting("the run is stopped", out);
      pause_wanted_.reset();
      phase_ = Phase::kHalted;
      return become(RunStatus::kStopped, step.reason, out);
    case RunStatus::kPaused:
      if (!is_halted) pause_wanted_ = step.reason;  // between rounds: at once
      return;
    case RunStatus::kRunning:
      pause_wanted_.reset();
      if (!is_halted) return;
      expired_attempts_ = 0;
      phase_ = Phase::kIdle;
      return become(RunStatus::kRunning, "", out);
    case RunStatus::kDone: FLUVIAL_CHECK(false, "nobody can wish that a run is done");
  }
}

Effects RunMachine::status_recorded(Step step, TimePoint now) {
  Effects out;
  if (!status_step_ || !awaits(step)) return out;
  const StatusStep done = *std::exchange(status_step_, std::nullopt);
  if (done.by_person) {
    obey(done, out);
    wishes_.pop_front();
    out.push_back(Answer{});
  } else {
    become(done.status, done.reason, out);
  }
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

Effects RunMachine::status_failed(Step step, const Error& error, TimePoint now) {
  Effects out;
  if (!status_step_ || !awaits(step)) return out;
  const StatusStep failed = *std::exchange(status_step_, std::nullopt);
  if (failed.by_person) {
    wishes_.pop_front();
    out.push_back(Answer{error});
  } else {
    const bool was_last = failed.status == RunStatus::kDone;
    const std::string why = "its end could not be recorded: " + error.message + "; " + std::string(kMendPhrase);
    become(RunStatus::kPaused, was_last ? why : failed.reason, out);
  }
  for (Effect& effect : run_steps(now)) out.push_back(std::move(effect));
  return out;
}

}  // namespace fluvial::coordinator
