// What a malicious aggregator says in the coordinator's name to those below it, and in its sites' names to its parent:
// openings, commits, outcomes and contributions that nobody signed. Of some of its messages; drawn for each.
#pragma once

#include <optional>

#include "core/base/rng.h"
#include "fluvial/v1/wire.pb.h"
#include "simulator/roles/cast.h"

namespace fluvial::simulator {

class Counterfeit {
 public:
  Counterfeit(Cast& cast, HostId host);

  // Sees each message before it leaves.
  void says(v1::Envelope* message);

 private:
  void bend(v1::RoundOpen* open);
  void bend(v1::RoundCommit* commit);
  void bend(v1::OutcomeReply* reply);
  void bend(v1::PartialBegin* begin);

  Cast& cast_;
  HostId host_;
  Rng rng_;
  std::optional<v1::RoundOpen> before_;   // an opening of an earlier round
  std::optional<v1::RoundOpen> earlier_;  // the first one of this round
};

}  // namespace fluvial::simulator
