// What a host's work costs, from real runs: `fluvial bench tree` says what each process took of a processor, and how
// many bytes went where. Least squares over all runs given, none of the costs below zero; what they leave open stays
// where it was.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "simulator/scenario/scenario.h"

namespace fluvial::simulator {

// One run; bytes and seconds of a round, but for the processor's, which are of the whole run.
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

// encode_ns, merge_ns, finalise_ns and byte_ns; `before` is what they are without. kInvalidArgument: a run without
// rounds, sites or values.
Result<ComputeScenario> calibrate(const std::vector<MeasuredRun>& runs, const ComputeScenario& before);

}  // namespace fluvial::simulator
