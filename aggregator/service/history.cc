// A lease of another history of the federation.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "aggregator/service/region_service.h"

namespace fluvial::aggregator {

net::Awaitable<Result<round::Standing>> RegionService::standing() {
  round::Standing standing = history_.standing();
  if (machine_.is_open()) standing.rounds.push_back({opening_->run, opening_->round});
  co_return standing;
}

net::Awaitable<Status> RegionService::granted(round::Lineage lineage, Epoch lease) {
  const Result<bool> is_another = history_.granted(lineage, lease);
  if (!is_another.ok()) {
    observer_.lease_not_taken(is_another.error());
    co_return is_another.error();
  }
  if (*is_another) {
    observer_.history_begins(round::current_of(lineage), round::began_of(lineage));
    forget_history();
  }
  orders_.in_history(round::current_of(lineage));
  std::vector<NodeId> others;
  for (const auto& [node, child] : hub_.children()) {
    if (!history_.is_current(child.history)) others.push_back(node);
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
  over_.clear();  // a run that was over may go on
  active_.clear();
  side_.begin();
  upload_.round_begins();
  model_.forget();
  next_model_.reset();
}

}  // namespace fluvial::aggregator
