// How long to wait before the next attempt: capped exponential with jitter. Pure.
#pragma once

#include <cstdint>

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

 private:
  BackoffSettings settings_;
  Rng rng_;
  Duration nominal_;
};

}  // namespace fluvial
