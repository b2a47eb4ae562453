// What the sites of the sized mode send: updates of the small model, made and encoded once, as a site does it, and
// shared by all. Several, because what a sum of sparse updates takes depends on how they differ.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/ids.h"
#include "core/base/result.h"
#include "core/round/schema.h"
#include "core/store/site_store.h"
#include "simulator/scenario/scenario.h"

namespace fluvial::simulator {

struct StandIn {
  store::PendingInfo info;  // run, round, weight and base are whoever's who sends it
  std::vector<Buffer> chunks;
  Buffer trailer;
};

class StandIns {
 public:
  StandIns(const Scenario& scenario, const round::Schema& schema);

  // The same again for the same site and round. As encode_update() says it, when the plan allows no such update.
  Result<std::shared_ptr<const StandIn>> of(SiteId site, RoundId round) const;
  // So many bytes of the scenario's own update a byte of these stands for, by what a larger one takes.
  double bytes_a_byte() const { return bytes_a_byte_; }

 private:
  std::vector<Result<std::shared_ptr<const StandIn>>> made_;
  double bytes_a_byte_ = 1;
};

}  // namespace fluvial::simulator
