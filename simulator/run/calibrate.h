// The costs of a host's work, from real runs: `fluvial bench tree` reports each process's processor time, and how many
// bytes went where. Least squares over all runs given, with no cost below zero; a cost that they do not determine keeps
// its value.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "simulator/scenario/scenario.h"

namespace fluvial::simulator {

// One run. Bytes and seconds are of a round, except processor seconds, which are of the whole run.
struct MeasuredRun {
  std::uint64_t sites = 0;
  std::uint64_t aggregators = 0;  // in one tier, or none
  std::uint64_t values = 0;
  std::uint64_t rounds = 0;
  double update_bytes = 0;      // of one site
  double root_up_bytes = 0;     // from all of the coordinator's children
  double root_down_bytes = 0;   // to them
  double site_cpu_s = 0;        // of one, its worker included, on average
  double aggregator_cpu_s = 0;  // of one, on average
  double coordinator_cpu_s = 0;
};

// Fits encode_ns, merge_ns, finalise_ns and byte_ns; `before` has their values without runs. kInvalidArgument: a run
// without rounds, sites or values.
Result<ComputeScenario> calibrate(const std::vector<MeasuredRun>& runs, const ComputeScenario& before);

}  // namespace fluvial::simulator
