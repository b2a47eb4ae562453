// Which sites take part in a round: a function of the connected sites, the fraction and (seed, round).
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/ids.h"

namespace fluvial::round {

// ceil(fraction * n) of the sites, at least one when there are any, in ascending order. Selection sampling (Knuth,
// TAOCP 2, algorithm S), so that each subset is equally likely.
std::vector<SiteId> sample_sites(const std::vector<SiteId>& connected, double fraction, std::uint64_t seed,
                                 RoundId round);

}  // namespace fluvial::round
