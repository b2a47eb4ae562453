#include "core/base/backoff.h"

#include <algorithm>

namespace fluvial {

Duration Backoff::next() {
  const auto nominal = std::chrono::duration<double, std::nano>(std::min(nominal_, settings_.cap));
  const double share = 1 - settings_.jitter * rng_.uniform();
  nominal_ = std::chrono::duration_cast<Duration>(
      std::min(nominal * settings_.factor, std::chrono::duration<double, std::nano>(settings_.cap)));
  return std::chrono::duration_cast<Duration>(nominal * share);
}

Duration Backoff::next_after(std::optional<Duration> lasted) {
  if (lasted && *lasted >= waited_) reset();
  waited_ = next();
  return waited_;
}

}  // namespace fluvial
