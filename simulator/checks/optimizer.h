// The server optimizers once more, one coordinate at a time, by the formulas and the roundings that kernels/optimizer.h
// and kernels/vector.h promise: the oracle's half of a commit. It shares no code with the kernels.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/round/plan.h"
#include "core/round/schema.h"
#include "simulator/checks/onebit.h"

namespace fluvial::simulator {

struct OptimizerState {
  std::vector<float> model, moment, variance;  // delayed_nesterov has its buffer in the variance's place
};  // and onebit_adam, once the variance is frozen, what its momentum leaves out in the moment's

// A run's state before its first round.
OptimizerState first_state(const round::ServerOptimizer& optimizer, std::span<const float> model);

// One round's step. `slack` is how far each value of the model may be off; empty: not at all. Only lars and lamb have
// slack: their layers' norms are sums whose order this oracle does not share, so a rate may differ in its last bit.
struct Step {
  OptimizerState next;
  std::vector<double> slack;
  std::optional<Onebit::Momentum> momentum = {};  // of onebit_adam, where the round hands one down
};
Step optimizer_step(const round::Plan& plan, const round::Schema& schema, std::uint64_t round,
                    std::uint64_t total_weight, std::span<const float> mean, const OptimizerState& before);

}  // namespace fluvial::simulator
