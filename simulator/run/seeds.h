// Many seeds over several threads, each world in one of them. Results do not depend on the number of threads.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "simulator/run/run.h"

namespace fluvial::simulator {

struct SeedsOptions {
  std::uint64_t first_seed = 1;
  std::uint64_t seeds = 1;
  unsigned threads = 1;
  std::uint64_t twice = 0;         // of the first seeds run again: another trace hash is a violation ("determinism")
  std::uint64_t failures_max = 1;  // then no further seed begins
  std::size_t lines_max = 200;     // of the log of each failing seed
};

struct SeedsResult {
  std::uint64_t seeds = 0;  // that ran
  std::uint64_t again = 0;  // of these, those that ran twice
  std::uint64_t events = 0;
  std::uint64_t rounds_committed = 0;
  std::string trace_hash;            // over all seeds' hashes, in their order
  std::vector<SeedResult> failures;  // in the order of seeds, with their logs
};

// `progress` is called from time to time, from one thread at a time, with the numbers of finished and failed seeds.
using SeedsProgress = std::function<void(std::uint64_t done, std::uint64_t failed)>;

// kInvalidArgument when the scenario draws no valid plan.
Result<SeedsResult> run_seeds(const ScenarioFile& file, const Settle& settle, const SeedsOptions& options,
                              const SeedsProgress& progress);

}  // namespace fluvial::simulator
