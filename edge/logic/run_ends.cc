#include "edge/logic/run_ends.h"

#include <algorithm>

#include "core/base/check.h"

namespace fluvial::edge {

// The run before no longer waits for its last model: its end is told before a task of the new run.
void RunEnds::begin(RunId run, RunEffects& out) {
  if (run == run_) return;
  for (Ending& ending : endings_) ending.due = true;
  tell_due(out);
  run_ = run;
  name_.clear();
}

// A parent may name as many as it likes: the newest count.
RunEffects RunEnds::active(RunId run, const std::string& name) {
  std::string& known = unended_[run];
  if (known == name || name.empty()) return {};
  known = name;
  if (unended_.size() > kActiveRunsMax) unended_.erase(unended_.begin());
  return {TellActive{run, name}};
}

RunEffects RunEnds::opened(RunId run, const std::string& name, RoundId round, const round::ModelRef& base) {
  RunEffects out;
  begin(run, out);
  const RunEffects is_active = active(run, name);
  out.insert(out.end(), is_active.begin(), is_active.end());
  name_ = name;
  round_ = round;
  // The commit of the round before may have been lost.
  if (round > RoundId(1)) note_commit(run, RoundId(round.value() - 1), base, out);
  return out;
}

RunEffects RunEnds::committed(RunId run, RoundId round, const round::ModelRef& model) {
  RunEffects out;
  round_ = run == run_ ? std::max(round_, round) : round;
  begin(run, out);
  note_commit(run, round, model, out);
  return out;
}

void RunEnds::note_commit(RunId run, RoundId round, const round::ModelRef& model, RunEffects& out) {
  if (committed_ && committed_->run == run && round <= committed_->round) return;
  committed_ = Committed{run, round, model};
  tell_committed(out);
}

RunEffects RunEnds::model_held(const round::ModelRef& model) {
  RunEffects out;
  held_ = model;
  tell_committed(out);
  return out;
}

// Workers are not told of a run that this site took no part in.
void RunEnds::tell_committed(RunEffects& out) const {
  const bool tells = committed_ && held_ == committed_->model && committed_->run == run_ && !name_.empty();
  if (tells) {
    out.push_back(TellCommitted{run_, name_, committed_->round, committed_->model});
  } else {
    out.push_back(TellNoneCommitted{});
  }
}

RunEffects RunEnds::ended(RunId run, std::string_view state, std::string_view name) {
  RunEffects out;
  const auto known = unended_.extract(run);
  if (known.empty()) return out;
  const bool at_hand = run == run_;
  const bool awaits = at_hand && committed_ && committed_->run == run;
  endings_.push_back({{run, name.empty() ? known.mapped() : std::string(name), std::string(state)}, at_hand, !awaits});
  if (awaits) out.push_back(AwaitLastModel{run, committed_->round});
  tell_due(out);
  return out;
}

RunEffects RunEnds::last_model_over(RunId run) {
  RunEffects out;
  for (Ending& ending : endings_) ending.due = ending.due || ending.end.run == run;
  tell_due(out);
  return out;
}

RunEffects RunEnds::history_entered() {
  RunEffects out;
  for (Ending& ending : endings_) ending.due = true;  // its last model is of the history before
  tell_due(out);
  committed_.reset();
  round_ = RoundId(0);
  return out;
}

void RunEnds::trained() {
  tasks_out_.reset();
  ++reading_;
}

RunEffects RunEnds::train_failed() {
  RunEffects out;
  tasks_out_.reset();
  tell_due(out);
  return out;
}

RunEffects RunEnds::read() {
  RunEffects out;
  FLUVIAL_CHECK(reading_ > 0, "memory that nobody reads");
  --reading_;
  tell_due(out);
  return out;
}

bool RunEnds::awaits_last_model(RunId run) const {
  return std::ranges::any_of(endings_, [&](const Ending& ending) { return ending.end.run == run && !ending.due; });
}

bool RunEnds::is_read(RunId run) const { return reading_ > 0 || (reads_in_place_ && tasks_out_ == run); }

void RunEnds::tell_due(RunEffects& out) {
  std::erase_if(endings_, [&](Ending& ending) {
    if (!ending.due || is_read(ending.end.run)) return false;
    out.push_back(TellEnded{ending.end, ending.at_hand});
    return true;
  });
}

}  // namespace fluvial::edge
