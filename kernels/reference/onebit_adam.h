// 1-bit Adam by the book (Tang et al., ICML 2021, algorithm 1): all sites and the server in one object, everything in
// fp64 and unrounded. For tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

namespace fluvial::kernels::reference {

struct OnebitAdam {
  using Vector = std::vector<double>;

  double beta1 = 0.9, beta2 = 0.999, tau = 1e-8;
  std::uint64_t freeze_rounds = 1;
  std::size_t block_values = 256;

  std::uint64_t round = 0;
  Vector model, momentum, variance;   // as long as the model; the momentum as the sites know it once it is frozen
  std::vector<Vector> site_residual;  // one a site, of (1 - beta1) times an update
  Vector server_residual;

  OnebitAdam(Vector start, std::size_t sites);
  // One round with one update a site.
  void step(double lr, const std::vector<Vector>& updates, const std::vector<double>& weights);
};

}  // namespace fluvial::kernels::reference
