// The figures of one run for planning a federation: how long rounds take, what crosses each tier, how many are late.
#pragma once

#include <vector>

#include "simulator/run/run.h"

namespace fluvial::simulator {

struct Capacity {
  std::uint64_t rounds = 0;
  // A round lasts from its first attempt's record to its commit's.
  double round_p50_s = 0;
  double round_p95_s = 0;
  double round_max_s = 0;
  double rounds_per_hour = 0;  // including the time between rounds
  double participants = 0;     // a round, on average
  double stragglers = 0;       // of them, not in
  struct Tier {
    TierTraffic total;
    double up_bytes_a_round = 0;  // all of the tier
    double down_bytes_a_round = 0;
  };
  std::vector<Tier> tiers;
};

Capacity capacity_of(const SeedResult& result);

}  // namespace fluvial::simulator
