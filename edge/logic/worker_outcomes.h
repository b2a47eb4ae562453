// The outcome of each worker's last result, by the worker's name, in each run. Pure, bounded. The outcomes of
// submissions are also in the site's store (store::SiteStore::worker_outcomes()), so they survive a restart.
#pragma once

#include <cstddef>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "edge/logic/site_machine.h"

namespace fluvial::edge {

struct LastResult {
  RoundId round;
  std::optional<Outcome> outcome;  // none: it is in no update
  bool operator==(const LastResult&) const = default;
};

class WorkerOutcomes {
 public:
  static constexpr std::size_t kRunsMax = 64;      // the newest
  static constexpr std::size_t kWorkersMax = 256;  // of a run, the latest to answer

  void set(RunId run, const std::string& worker, LastResult last);
  void answered(RunId run, RoundId round, const std::string& worker) { set(run, worker, {round, {}}); }
  void used(RunId run, RoundId round, const std::vector<std::string>& workers);  // in an update, not decided yet
  void decided(RunId run, RoundId round, Outcome outcome);                       // of that update
  void dropped(RunId run, RoundId round);                                        // it was never made
  void forget(RunId run) { runs_.erase(run); }
  std::optional<LastResult> of(RunId run, const std::string& worker) const;

 private:
  std::map<RunId, std::map<std::string, LastResult>> runs_;
};

}  // namespace fluvial::edge
