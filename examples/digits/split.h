// Which site holds which images: a Dirichlet draw, as in Hsu, Qi, Brown, "Measuring the Effects of Non-Identical Data
// Distribution for Federated Visual Classification" (2019), here class by class.
#pragma once

#include <cstdint>
#include <vector>

#include "core/base/result.h"
#include "examples/digits/examples.h"

namespace fluvial::digits {

struct SplitOptions {
  std::size_t sites = 4;
  double alpha = 0.3;  // small: each site sees few digits; large: all sites look alike
  std::uint64_t seed = 1;
  std::size_t images_min = 20;  // a site
};

// Ascending indices into `train`, one list for each site; together each index once. Depends only on its arguments.
// kInvalidArgument: no site, alpha out of range, or too few images for that many sites.
Result<std::vector<std::vector<std::uint32_t>>> split_over_sites(const Examples& train, const SplitOptions& options);

// For each class the shares of the sites (they sum to 1). Exposed for its test.
std::vector<double> draw_dirichlet(std::size_t count, double alpha, std::uint64_t seed);

}  // namespace fluvial::digits
