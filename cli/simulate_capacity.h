// `fluvial simulate --capacity`: one seed's figures, by costs from real runs, and how far they are from a real run.
// Inside cli/ only.
#pragma once

#include <string>
#include <vector>

#include "cli/command.h"
#include "simulator/run/run.h"

namespace fluvial::cli {

struct CapacityOptions {
  std::uint64_t seed = 1;
  std::vector<std::string> calibrate;  // what fluvial bench tree --json wrote: what work costs
  std::string against;                 // likewise, to compare with; empty: nothing
  std::string json;                    // write the result here; empty: nowhere
};

int run_capacity(const Io& io, simulator::ScenarioFile file, const simulator::Settle& settle,
                 const CapacityOptions& options);

}  // namespace fluvial::cli
