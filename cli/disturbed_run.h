// A run that is followed while nodes are killed in the middle of its rounds: for `fluvial demo --kill`.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "cli/local_federation.h"
#include "cli/round_view.h"

namespace fluvial::cli {

struct Kill {
  std::string node;
  std::uint64_t round = 0;  // it dies once this round, or the first after it that is seen to open, is open
};

// Kills each node with SIGKILL in its turn and starts it again with the same data; returns when the run has committed
// `rounds` rounds. The federation's nodes may fail (FederationShape::may_fail). An error: the run paused, or a node did
// not come back. Blocking.
Status watch_disturbed_run(LocalFederation& federation, std::uint64_t run, std::uint64_t rounds,
                           std::vector<Kill> kills, RoundView& view,
                           const std::function<void(const std::string&)>& say);

}  // namespace fluvial::cli
