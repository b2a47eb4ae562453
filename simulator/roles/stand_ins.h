// The updates that sites of the sized mode send: made from the small model and encoded once, as a site does, and shared
// by all. There are several, because the size of a sum of sparse updates depends on how they differ.
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
  store::PendingInfo info;  // run, round, weight and base are the sender's
  std::vector<Buffer> chunks;
  Buffer trailer;
};

class StandIns {
 public:
  StandIns(const Scenario& scenario, const round::Schema& schema);

  // Always the same for the same site and round. encode_update()'s error, when the plan allows no such update.
  Result<std::shared_ptr<const StandIn>> of(SiteId site, RoundId round) const;
  // How many bytes of the scenario's own update a byte of these stands for, judged by the size of a larger one.
  double bytes_a_byte() const { return bytes_a_byte_; }

 private:
  std::vector<Result<std::shared_ptr<const StandIn>>> made_;
  double bytes_a_byte_ = 1;
};

}  // namespace fluvial::simulator
