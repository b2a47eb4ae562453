// What an all-reduce costs, by the textbooks' linear model: a message of n bytes takes alpha + n beta, and reducing n
// bytes takes n gamma. Every node has its own processor and a full-duplex line, and does one thing at a time in each
// direction. Pure.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

namespace fluvial::cli::bound {

struct LineModel {
  double alpha_s = 0;       // of a message, whatever its size
  double beta_s_byte = 0;   // of a byte on a line
  double gamma_s_byte = 0;  // of adding a byte of a vector to a sum
};

struct CollectiveCost {
  double steps = 0;          // messages behind each other
  double line_bytes = 0;     // behind each other on the busiest node's line, one direction
  double reduced_bytes = 0;  // behind each other, into one node's sum

  double seconds(const LineModel& line) const {
    return steps * line.alpha_s + line_bytes * line.beta_s_byte + reduced_bytes * line.gamma_s_byte;
  }
};

// All for an all-reduce of a vector of `bytes` over `nodes`; a single node needs nothing.

// Thakur, Rabenseifner, Gropp: Optimization of Collective Communication Operations in MPICH (2005), section 4.5;
// Patarasuk, Yuan: Bandwidth optimal all-reduce algorithms for clusters of workstations (2009), section 4.
CollectiveCost ring(std::uint64_t nodes, double bytes);

// Rabenseifner's algorithm (same article, section 4.5): recursive halving, then doubling. Where `nodes` is no power of
// two, each node beyond the greatest power of two sends its vector to a partner beforehand and gets the result
// afterwards.
CollectiveCost halving_doubling(std::uint64_t nodes, double bytes);

// A binomial tree up (reduce), then down (broadcast), whole vectors (same article, sections 4.2 and 4.4).
CollectiveCost binomial_tree(std::uint64_t nodes, double bytes);

// One parent, whose line carries every child's vector in, and the result out to each: a tree of ours without
// aggregators. `nodes` are the children; the parent contributes nothing.
CollectiveCost star(std::uint64_t nodes, double bytes);

// The same with `groups` parents below the root (at least 1): the largest group's star, then the groups' star, and
// back.
CollectiveCost two_level(std::uint64_t nodes, std::uint64_t groups, double bytes);

// What no algorithm gets below, each by itself. Steps: ceil(log2 p), since a node's news reach at most twice as many
// with each step. Bytes and additions: Patarasuk and Yuan, theorem 1, and Chan, Heimlich, Purkayastha, van de Geijn:
// Collective communication: theory, practice, and experience (2007), table 1.
CollectiveCost lower_bound(std::uint64_t nodes, double bytes);

struct NamedCost {
  std::string name;
  CollectiveCost cost;
};
// All of the above in this order; two_level with `groups`, if that is at least 1.
std::vector<NamedCost> all_collectives(std::uint64_t nodes, std::uint64_t groups, double bytes);

}  // namespace fluvial::cli::bound
