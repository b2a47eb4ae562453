// How long to wait before the next attempt: capped exponential with jitter. Pure.
#pragma once

#include <cstdint>
#include <optional>

#include "core/base/clock.h"
#include "core/base/rng.h"

namespace fluvial {

struct BackoffSettings {
  Duration first = std::chrono::milliseconds(200);
  Duration cap = std::chrono::seconds(30);
  double factor = 2;
  double jitter = 0.5;  // the wait is drawn from [1 - jitter, 1] of its nominal length, so a crowd spreads out
};

class Backoff {
 public:
  Backoff(BackoffSettings settings, Rng rng) : settings_(settings), rng_(rng), nominal_(settings.first) {}

  Duration next();                              // and doubles the nominal length, up to the cap
  void reset() { nominal_ = settings_.first; }  // after a success that lasted
  // After a try that led to something that `lasted` (none: it led to nothing). Less than the wait before it is no
  // success.
  Duration next_after(std::optional<Duration> lasted);

 private:
  BackoffSettings settings_;
  Rng rng_;
  Duration nominal_;
  Duration waited_{0};
};

}  // namespace fluvial
