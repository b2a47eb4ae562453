// Numbers of the normal distribution from a seeded generator.
#pragma once

#include <cmath>
#include <numbers>

#include "core/base/rng.h"

namespace fluvial::simulator {

// Mean 0, standard deviation 1: Box and Muller, "A note on the generation of random normal deviates", 1958.
inline double normal(Rng& rng) {
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

}  // namespace fluvial::simulator
