// A lease of another history of the federation.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "aggregator/service/region_service.h"

namespace fluvial::aggregator {

net::Awaitable<Result<round::Standing>> RegionService::standing() {
  round::Standing standing{history_.value_or(round::HistoryId(0)), heard_, {}};
  if (committed_) standing.rounds.push_back(*committed_);
  if (machine_.is_open()) standing.rounds.push_back({opening_->run, opening_->round});
  co_return standing;
}

net::Awaitable<Status> RegionService::granted(round::Lineage lineage, Epoch lease) {
  const round::HistoryId history = round::current_of(lineage);
  if (history_ && history != *history_) {
    if (round::began_of(lineage) <= heard_) {
      Error older = round::older_history(lineage, heard_);
      observer_.lease_not_taken(older);
      co_return older;
    }
    observer_.history_begins(history, round::began_of(lineage));
    forget_history();
  }
  history_ = history;
  heard_ = std::max({heard_, lease, round::began_of(lineage)});
  std::vector<NodeId> others;
  for (const auto& [node, child] : hub_.children()) {
    if (child.history != history) others.push_back(node);
  }
  for (const NodeId node : others) {
    hub_.cut(node, {Code::kStale, "the federation has another history: come for a lease"});
  }
  co_return Status{};
}

// The sum, the model and the round are those of rounds that may be lost; children send again what still counts.
void RegionService::forget_history() {
  give_up_round();
  opening_.reset();
  committed_.reset();
  over_.clear();  // a run that was over may go on
  side_.begin();
  up_.lost();
  if (slot_) slot_->abandon();
  slot_.reset();
}

}  // namespace fluvial::aggregator
