#include "simulator/scenario/chance.h"

#include <algorithm>
#include <cmath>

namespace fluvial::simulator {

Rng Chance::stream(std::string_view name, std::uint64_t index) const {
  std::uint64_t key = 0xcbf29ce484222325ULL;  // FNV-1a
  for (const char c : name) key = (key ^ static_cast<unsigned char>(c)) * 0x100000001b3ULL;
  Rng mixed(seed_ ^ Rng(key).next());
  return Rng(mixed.next() ^ Rng(index + 1).next());
}

double between(Rng& rng, double low, double high) { return low + (high - low) * rng.uniform(); }

std::uint64_t between(Rng& rng, std::uint64_t low, std::uint64_t high) {
  return low >= high ? low : low + rng.below(high - low + 1);
}

Duration between(Rng& rng, Duration low, Duration high) {
  return Duration(static_cast<Duration::rep>(
      between(rng, static_cast<std::uint64_t>(low.count()), static_cast<std::uint64_t>(high.count()))));
}

Duration exponential(Rng& rng, Duration mean) {
  const double u = std::max(rng.uniform(), 1e-12);
  return Duration(static_cast<Duration::rep>(-std::log(u) * static_cast<double>(mean.count())));
}

}  // namespace fluvial::simulator
