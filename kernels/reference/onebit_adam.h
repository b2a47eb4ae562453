// 1-bit Adam by the book (Tang et al., ICML 2021, algorithm 1): all sites and the server in one object, everything in
// fp64 and unrounded. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fluvial::kernels::reference {

struct OnebitAdam {
  using Vector = std::vector<double>;

  double beta1 = 0.9, beta2 = 0.999, eps = 1e-8;
  double variance_floor = 0;
  std::uint64_t freeze_round = 1;
  std::size_t block_values = 256;
  bool two_sided = false;

  std::uint64_t round = 0;
  Vector model, momentum, variance;   // as long as the model
  std::vector<Vector> site_residual;  // one a site
  Vector server_residual;

  OnebitAdam(Vector start, std::size_t sites);
  // One round with one gradient a site.
  void step(double lr, const std::vector<Vector>& gradients, const std::vector<double>& weights);
};

}  // namespace fluvial::kernels::reference
