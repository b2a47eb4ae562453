// Which sites take part in a round: a function of the connected sites with their weights, the fraction and (seed,
// round).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/base/ids.h"

namespace fluvial::round {

// ceil(fraction * n) of the sites, at least one when there are any, in ascending order: weighted sampling without
// replacement by Efraimidis and Spirakis (Weighted random sampling with a reservoir, Information Processing Letters 97,
// 2006): site i gets the key u_i^(1/w_i), and the largest keys are drawn. u_i is a function of (seed, round, site), so
// who else is connected does not change it. Equal weights: each subset is equally likely. Weights are above 0.
std::vector<SiteId> sample_sites(const std::map<SiteId, double>& weights, double fraction, std::uint64_t seed,
                                 RoundId round);
// Draws `count` sites by the same keys; all of them when there are no more.
std::vector<SiteId> draw_sites(const std::map<SiteId, double>& weights, std::size_t count, std::uint64_t seed,
                               RoundId round);

}  // namespace fluvial::round
