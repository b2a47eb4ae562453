// How the vectors of a site's workers become one: an algorithm as steps of sums, whatever carries them out. Pure.
//
// One result is wanted, in one place, so these are reductions. The second half of the literature's all-reduce, which
// gives every rank the result, is left out. Sources: Thakur, Rabenseifner, Gropp, "Optimization of collective
// communication operations in MPICH", IJHPCA 19(1), 2005; Patarasuk, Yuan, "Bandwidth optimal all-reduce algorithms
// for clusters of workstations", JPDC 69(2), 2009.
#pragma once

#include <array>
#include <cstddef>
#include <string_view>
#include <vector>

#include "core/base/result.h"

namespace fluvial::edge {

// p workers, n values; steps, and values read and written in all of them together. b: the greatest power of two in p.
enum class Algorithm {
  kDirect,           // 1 step: every value of the result is the sum of p. (p + 1) n
  kRing,             // p - 1 steps: slice i visits the workers from i on, one a step. 3 (p - 1) n
  kHalvingDoubling,  // log2 b steps (1 more unless p = b): pairs exchange halves, then quarters, ... 3 (p - 1) n
  kTree,             // ceil(log2 p) steps: pairs, then pairs of pairs. 3 (p - 1) n
  kTwoLevel,         // 2 steps: groups of ceil(sqrt(p)), then their sums. (p + 1 + 2 g) n, g groups of more than one
};
inline constexpr std::array kAlgorithms{Algorithm::kDirect, Algorithm::kRing, Algorithm::kHalvingDoubling,
                                        Algorithm::kTree, Algorithm::kTwoLevel};
std::string_view algorithm_name(Algorithm algorithm);  // "direct", "ring", "halving_doubling", "tree", "two_level"
Result<Algorithm> parse_algorithm(std::string_view name);

inline constexpr std::size_t kRanksMax = 64;

// A vector of as many values as the result: a worker's vector, which is only read and counts with its share of the
// weight; a partial sum, kept for the worker of that rank; or the result.
struct Place {
  enum class Kind { kWorker, kPartial, kResult } kind = Kind::kResult;
  std::size_t rank = 0;
  bool operator==(const Place&) const = default;
};

// into[first, first + count) = the sum of the same range of `of`, which may hold `into` itself.
struct Sum {
  Place into;
  std::vector<Place> of;
  std::size_t first = 0;
  std::size_t count = 0;
};

// A sum touches no range that another sum of its step writes, so they may run side by side. Steps follow each other.
using Step = std::vector<Sum>;

// 1 to kRanksMax ranks.
std::vector<Step> make_schedule(Algorithm algorithm, std::size_t ranks, std::size_t values);

}  // namespace fluvial::edge
