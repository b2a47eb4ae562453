// 1-bit Adam once more, by docs/formats/onebit-adam.md, one value at a time: what the root makes of a round, the
// momentum as it comes down, and what a site is lent of it. All of it to the bit. It shares no code with the kernels.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/ids.h"
#include "core/round/plan.h"

namespace fluvial::simulator {

struct OptimizerState;

class Onebit {
 public:
  // None: another codec.
  static std::optional<Onebit> of(const round::Plan& plan);

  bool has_warm_up() const { return freeze_ > 0; }
  bool warms_up(RoundId round) const { return round.value() <= freeze_; }

  struct Momentum {
    std::vector<float> values;
    std::vector<std::byte> bytes;  // as it comes down
  };
  // The step of this round. None: its commit hands no momentum down.
  std::optional<Momentum> step(const round::ServerOptimizer& optimizer, double lr, RoundId round,
                               std::span<const float> mean, OptimizerState& state) const;
  // What a vector becomes that is sent in this round.
  std::vector<float> sent(RoundId round, std::span<const float> vector) const;
  // What a site is lent of this momentum.
  std::vector<float> lent(std::span<const float> momentum) const;

 private:
  Momentum compressed(std::span<const float> vector) const;

  std::uint64_t freeze_ = 0;
  double beta1_ = 0;
  std::size_t block_ = 0;
  std::size_t chunk_ = 0;  // values of one
};

}  // namespace fluvial::simulator
