// Which sites take part in a round: a function of the connected sites' names and weights, the fraction and (seed,
// round).
#pragma once

#include <cstddef>
#include <cstdint>
#include <map>
#include <vector>

#include "core/base/ids.h"

namespace fluvial::round {

// What a site is drawn with.
struct Lot {
  Lot(double weight = 1, std::uint64_t key = 0) : weight(weight), key(key) {}  // NOLINT(google-explicit-constructor)
  double weight;                                                               // above 0
  std::uint64_t key;  // name_key() of its name; 0: its number stands for it
};

// ceil(fraction * n) of the sites, at least one when there are any, in ascending order: weighted sampling without
// replacement by Efraimidis and Spirakis (Weighted random sampling with a reservoir, Information Processing Letters 97,
// 2006): site i gets the key u_i^(1/w_i), and the largest keys are drawn. u_i is a function of (seed, round, name), so
// who else is connected does not change it. Equal weights: each subset is equally likely.
std::vector<SiteId> sample_sites(const std::map<SiteId, Lot>& lots, double fraction, std::uint64_t seed, RoundId round);
// Draws `count` sites by the same keys, in the order in which they are drawn; all of them when there are no more.
std::vector<SiteId> draw_sites(const std::map<SiteId, Lot>& lots, std::size_t count, std::uint64_t seed, RoundId round);

// How many connected sites a round waits for where its plan does not say: half of those that are enrolled, two at least
// where there are two, so that whoever comes first does not train alone; never fewer than the quorum.
std::uint64_t participants_min_for(std::uint64_t sites_enrolled, std::uint64_t quorum);

}  // namespace fluvial::round
