#include "aggregator/logic/region_history.h"

#include <algorithm>

namespace fluvial::aggregator {

Result<bool> RegionHistory::granted(const round::Lineage& lineage, Epoch lease) {
  const round::HistoryId history = round::current_of(lineage);
  const bool is_another = !is_current(history);
  if (is_another && round::began_of(lineage) <= heard_) return round::older_history(lineage, heard_);
  if (is_another) committed_.reset();
  current_ = history;
  heard_ = std::max({heard_, lease, round::began_of(lineage)});
  return is_another;
}

void RegionHistory::heard(Epoch epoch) { heard_ = std::max(heard_, epoch); }

void RegionHistory::committed(RunId run, RoundId round) {
  committed_ = round::KnownRound{run, round, /*decided=*/true};
}

bool RegionHistory::is_current(round::HistoryId history) const { return !current_ || *current_ == history; }

round::Standing RegionHistory::standing() const {
  round::Standing standing{current_.value_or(round::HistoryId(0)), heard_, {}};
  if (committed_) standing.rounds.push_back(*committed_);
  return standing;
}

}  // namespace fluvial::aggregator
