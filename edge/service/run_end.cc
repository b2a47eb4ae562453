// A run's end, and what workers are told of commits and of it.
#include <boost/asio/awaitable.hpp>
#include <chrono>

#include "core/net/deadline.h"
#include "edge/service/service.h"

namespace fluvial::edge {

// Told by its last commit, by the parent, or in answer to a question; the first of them counts.
void EdgeService::note_end(RunId run, const std::string& state) {
  if (machine_->is_over(run)) return;
  carry_out(machine_->run_over(run));
  end_for_workers(run, state);
}

const char* EdgeService::late_text(RunId run) const {
  return machine_->is_over(run) ? "update late: its run is over; it goes into the run that continues it, if one does"
                                : "update late: it goes into the next one";
}

// Told by the commit, or by the opening of the round after it when that was lost.
void EdgeService::note_commit(RunId run, RoundId round, const round::ModelRef& model) {
  if (committed_ && committed_->run == run && round <= committed_->round) return;
  committed_ = Committed{run, round, model};
  tell_committed();
}

// Once the model is here, and before the next task. A run that this site took no part in means nothing to its workers.
void EdgeService::tell_committed() {
  if (stopping_) return;
  if (committed_ && held_ && held_->ref == committed_->model && committed_->run == run_ && !run_name_.empty()) {
    desk_.committed({committed_->run, run_name_, committed_->round, committed_->model.version, held_->bytes});
  } else {
    desk_.uncommitted();
  }
  model_here_.notify_all();
}

void EdgeService::end_for_workers(RunId run, std::string_view state) {
  const auto name = names_.find(run);
  if (name == names_.end() || stopping_) return;
  const local::EndedRun ended{run, name->second, std::string(state)};
  names_.erase(name);
  if (run != run_) {  // another began meanwhile
    passed_.push_back(ended);
    return tell_passed();
  }
  if (ending_ && ending_->run != run) say_ended();
  ending_ = ended;
  const bool owed = committed_ && committed_->run == run && desk_.owes(run, committed_->round);
  if (!owed) return tell_ended();
  process_.spawn("last model", wait_for_last_model());
}

// As long as some of it keeps coming.
net::Awaitable<void> EdgeService::wait_for_last_model() {
  const RunId run = ending_->run;
  const RoundId last = committed_->round;
  const std::chrono::milliseconds patience(settings_.model_deadline_ms);
  for (std::uint64_t before = ~fetch_.bytes_received();;) {
    const bool waits = ending_ && ending_->run == run && desk_.owes(run, last);
    if (stopping_ || !waits) break;
    const Status woken = co_await net::with_deadline(model_here_.wait(), patience);
    if (!woken.ok() && before == fetch_.bytes_received()) {
      log_of(run, last).warn("the run ends for its workers without its last model: it does not arrive");
      break;
    }
    before = fetch_.bytes_received();
  }
  if (ending_ && ending_->run == run) tell_ended();
}

// Workers free a GPU's memory when they hear of the end: not while it is read, nor before what they still bring is.
void EdgeService::tell_ended() {
  end_is_due_ = ending_ && is_read(ending_->run);
  if (ending_ && !end_is_due_) say_ended();
}

bool EdgeService::is_read(RunId run) const {
  return reading_results_ || early_.reads() || (gpus_ && desk_.trains(run));
}

void EdgeService::tell_passed() {
  std::erase_if(passed_, [this](const local::EndedRun& ended) {
    if (is_read(ended.run)) return false;
    if (!stopping_) workers_->run_ended(ended);
    return true;
  });
}

void EdgeService::say_ended() {
  early_.drop();
  desk_.let_go();
  if (!stopping_) workers_->run_ended(*ending_);
  ending_.reset();
}

void EdgeService::tell_end_if_due() {
  if (end_is_due_) tell_ended();
  tell_passed();
}

}  // namespace fluvial::edge
