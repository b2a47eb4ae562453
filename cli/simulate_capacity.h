// `fluvial simulate --capacity`: one seed's figures, and how far they are from a measured run. Inside cli/ only.
#pragma once

#include <string>

#include "cli/command.h"
#include "simulator/run/run.h"

namespace fluvial::cli {

// `against` and `json` are paths, or empty.
int run_capacity(const Io& io, const simulator::ScenarioFile& file, const simulator::Settle& settle, std::uint64_t seed,
                 const std::string& against, const std::string& json);

}  // namespace fluvial::cli
