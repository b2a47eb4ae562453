#include "core/round/history.h"

#include <algorithm>
#include <set>
#include <string>

namespace fluvial::round {

HistoryId current_of(const Lineage& lineage) { return lineage.empty() ? HistoryId(0) : lineage.back().id; }

Epoch began_of(const Lineage& lineage) { return lineage.empty() ? Epoch(0) : lineage.back().began; }

bool holds(const Lineage& lineage, HistoryId history) {
  return history == HistoryId(0) || std::ranges::find(lineage, history, &History::id) != lineage.end();
}

Status check_lineage(const Lineage& lineage) {
  if (lineage.size() > kHistoriesMax) return Error{Code::kInvalidArgument, "too many histories"};
  std::set<HistoryId> ids = {HistoryId(0)};
  Epoch before;
  for (const History& history : lineage) {
    if (!ids.insert(history.id).second || history.began <= before || history.forks.size() > kForksMax) {
      return Error{Code::kInvalidArgument,
                   "history " + std::to_string(history.id.value()) + ": expected ids that differ and epochs that grow"};
    }
    before = history.began;
  }
  return {};
}

Error older_history(const Lineage& lineage, Epoch known) {
  const std::string began = std::to_string(began_of(lineage).value());
  const std::string heard = std::to_string(known.value());
  return {Code::kFailedPrecondition,
          "the coordinator's history began at epoch " + began + ", and epoch " + heard +
              " was heard of here: it is an older coordinator, or it was restored on a machine whose clock is behind. "
              "Stop the older one; if it is the one to go on, run it once with --restored --above " +
              heard};
}

Common::Common(const Lineage& one, const Lineage& other) {
  std::size_t shared = 0;
  while (shared < one.size() && shared < other.size() && one[shared].id == other[shared].id) ++shared;
  cut(one, shared);
  cut(other, shared);
}

void Common::cut(const Lineage& lineage, std::size_t from) {
  for (std::size_t i = from; i < lineage.size(); ++i) {
    last_run_ = std::min(last_run_, lineage[i].last_run);
    forks_.insert(forks_.end(), lineage[i].forks.begin(), lineage[i].forks.end());
  }
}

bool Common::has(RunId run, RoundId round) const {
  return has(run) &&
         std::ranges::all_of(forks_, [&](const Fork& fork) { return fork.run != run || round <= fork.round; });
}

}  // namespace fluvial::round
