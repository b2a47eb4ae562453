// Random draws that are the same on every machine and with every standard library.
#pragma once

#include <cmath>
#include <cstdint>
#include <initializer_list>
#include <numbers>
#include <utility>
#include <vector>

#include "core/base/rng.h"

namespace fluvial::digits {

// One seed from several numbers.
inline std::uint64_t mix(std::initializer_list<std::uint64_t> parts) {
  std::uint64_t seed = 0;
  for (const std::uint64_t part : parts) seed = Rng(seed ^ part).next();
  return seed;
}

template <typename T>
void shuffle(std::vector<T>& values, Rng& rng) {  // Fisher-Yates
  for (std::size_t i = values.size(); i > 1; --i) std::swap(values[i - 1], values[rng.below(i)]);
}

inline double normal(Rng& rng) {  // Box-Muller
  const double radius = std::sqrt(-2 * std::log(1 - rng.uniform()));
  return radius * std::cos(2 * std::numbers::pi * rng.uniform());
}

}  // namespace fluvial::digits
