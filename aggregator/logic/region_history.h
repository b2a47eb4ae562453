// What an aggregator has heard of the federation's history. It shows this when it asks for a lease, and takes no lease
// of a history that began before something it knows. Pure.
#pragma once

#include <optional>

#include "core/round/history.h"

namespace fluvial::aggregator {

class RegionHistory {
 public:
  // A lease of this lineage's history was granted. Returns whether the history differs from the one before: then rounds
  // held here may be lost. An error: the lease must not be taken.
  Result<bool> granted(const round::Lineage& lineage, Epoch lease);
  void heard(Epoch epoch);
  void committed(RunId run, RoundId round);
  bool is_current(round::HistoryId history) const;  // true before the first lease
  round::Standing standing() const;

 private:
  std::optional<round::HistoryId> current_;     // of the last lease
  Epoch heard_;                                 // the greatest epoch
  std::optional<round::KnownRound> committed_;  // the last
};

}  // namespace fluvial::aggregator
