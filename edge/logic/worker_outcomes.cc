#include "edge/logic/worker_outcomes.h"

#include <algorithm>

namespace fluvial::edge {

void WorkerOutcomes::set(RunId run, const std::string& worker, LastResult last) {
  std::map<std::string, LastResult>& workers = runs_[run];
  workers[worker] = last;
  if (workers.size() > kWorkersMax) {
    workers.erase(std::ranges::min_element(workers, {}, [](const auto& entry) { return entry.second.round; }));
  }
  if (runs_.size() > kRunsMax) runs_.erase(runs_.begin());
}

void WorkerOutcomes::used(RunId run, RoundId round, const std::vector<std::string>& workers) {
  for (const std::string& worker : workers) set(run, worker, {round, Outcome::kPending});
}

void WorkerOutcomes::decided(RunId run, RoundId round, Outcome outcome) {
  for (auto& [worker, last] : runs_[run]) {
    if (last == LastResult{round, Outcome::kPending}) last.outcome = outcome;
  }
}

void WorkerOutcomes::dropped(RunId run, RoundId round) {
  for (auto& [worker, last] : runs_[run]) {
    if (last == LastResult{round, Outcome::kPending}) last.outcome.reset();
  }
}

std::optional<LastResult> WorkerOutcomes::of(RunId run, const std::string& worker) const {
  const auto found = runs_.find(run);
  if (found == runs_.end()) return {};
  const auto last = found->second.find(worker);
  return last == found->second.end() ? std::optional<LastResult>() : last->second;
}

}  // namespace fluvial::edge
