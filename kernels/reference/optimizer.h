// The server optimizers in fp64 over whole vectors, from the papers' formulas; D is subtracted from the model. For
// tests.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string_view>
#include <vector>

namespace fluvial::kernels::reference {

struct OptimizerOptions {
  double lr = 1, momentum = 0.9, beta1 = 0.9, beta2 = 0.99, tau = 1e-3, weight_decay = 0, trust = 1, c = 0;
  std::uint64_t every = 4;
};

struct Layer {
  std::size_t offset = 0, count = 0;
  bool scaled = true;  // by its trust ratio
};

struct OptimizerState {
  std::vector<double> model, moment, variance;  // delayed_nesterov has its buffer in the variance's place
};

// One step of fedavg, fedavgm, fedadagrad, fedadam, fedyogi, nesterov, delayed_nesterov, lars, lamb, mean or signsgd.
// `step` counts from 1. `layers` cover the model, for lars and lamb.
void optimizer_step(std::string_view name, const OptimizerOptions& options, std::uint64_t step,
                    const std::vector<double>& d, const std::vector<Layer>& layers, OptimizerState& state);

}  // namespace fluvial::kernels::reference
