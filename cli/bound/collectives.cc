#include "cli/bound/collectives.h"

#include <bit>

namespace fluvial::cli::bound {
namespace {

double log2_down(std::uint64_t nodes) { return static_cast<double>(std::bit_width(nodes) - 1); }
double log2_up(std::uint64_t nodes) { return nodes <= 1 ? 0.0 : static_cast<double>(std::bit_width(nodes - 1)); }

// (p - 1) / p of the vector: what a node has to learn, or to give away, of a vector that is spread over all.
double spread(std::uint64_t nodes, double bytes) {
  return bytes * static_cast<double>(nodes - 1) / static_cast<double>(nodes);
}

}  // namespace

CollectiveCost ring(std::uint64_t nodes, double bytes) {
  if (nodes <= 1) return {};
  return {.steps = 2 * static_cast<double>(nodes - 1),
          .line_bytes = 2 * spread(nodes, bytes),
          .reduced_bytes = spread(nodes, bytes)};
}

CollectiveCost halving_doubling(std::uint64_t nodes, double bytes) {
  if (nodes <= 1) return {};
  const std::uint64_t power = std::bit_floor(nodes);
  CollectiveCost cost{
      .steps = 2 * log2_down(nodes), .line_bytes = 2 * spread(power, bytes), .reduced_bytes = spread(power, bytes)};
  if (power != nodes) {
    cost.steps += 2;
    cost.line_bytes += 2 * bytes;
    cost.reduced_bytes += bytes;
  }
  return cost;
}

CollectiveCost binomial_tree(std::uint64_t nodes, double bytes) {
  const double levels = log2_up(nodes);
  return {.steps = 2 * levels, .line_bytes = 2 * levels * bytes, .reduced_bytes = levels * bytes};
}

CollectiveCost star(std::uint64_t nodes, double bytes) {
  const auto children = static_cast<double>(nodes);
  return {.steps = 2, .line_bytes = 2 * children * bytes, .reduced_bytes = children * bytes};
}

CollectiveCost two_level(std::uint64_t nodes, std::uint64_t groups, double bytes) {
  const CollectiveCost below = star((nodes + groups - 1) / groups, bytes);
  const CollectiveCost above = star(groups, bytes);
  return {.steps = below.steps + above.steps,
          .line_bytes = below.line_bytes + above.line_bytes,
          .reduced_bytes = below.reduced_bytes + above.reduced_bytes};
}

CollectiveCost lower_bound(std::uint64_t nodes, double bytes) {
  if (nodes <= 1) return {};
  return {.steps = log2_up(nodes), .line_bytes = 2 * spread(nodes, bytes), .reduced_bytes = spread(nodes, bytes)};
}

std::vector<NamedCost> all_collectives(std::uint64_t nodes, std::uint64_t groups, double bytes) {
  std::vector<NamedCost> all = {{"ring", ring(nodes, bytes)},
                                {"halving and doubling", halving_doubling(nodes, bytes)},
                                {"binomial tree", binomial_tree(nodes, bytes)},
                                {"one parent", star(nodes, bytes)}};
  if (groups >= 1) all.push_back({"two levels of parents", two_level(nodes, groups, bytes)});
  all.push_back({"lower bound", lower_bound(nodes, bytes)});
  return all;
}

}  // namespace fluvial::cli::bound
