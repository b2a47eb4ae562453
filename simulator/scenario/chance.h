// All randomness of a run, from its seed. Each use has its own stream, so that one more draw in one place changes
// nothing in another.
#pragma once

#include <cstdint>
#include <string_view>

#include "core/base/clock.h"
#include "core/base/rng.h"

namespace fluvial::simulator {

class Chance {
 public:
  explicit Chance(std::uint64_t seed) : seed_(seed) {}
  std::uint64_t seed() const { return seed_; }
  Rng stream(std::string_view name, std::uint64_t index = 0) const;

 private:
  std::uint64_t seed_;
};

inline bool happens(Rng& rng, double rate) { return rate > 0 && rng.uniform() < rate; }
double between(Rng& rng, double low, double high);
std::uint64_t between(Rng& rng, std::uint64_t low, std::uint64_t high);  // inclusive
Duration between(Rng& rng, Duration low, Duration high);
Duration exponential(Rng& rng, Duration mean);

}  // namespace fluvial::simulator
