// Norms and their bounds.
#pragma once

#include "kernels/ops/square_root.h"

namespace fluvial::kernels::ops {

// The sum of lanes of squares: i and i + 8, then 4, 2, 1 (of 16). Changes the lanes.
FLUVIAL_HD double add_lanes(double* lanes, unsigned count) {
  for (unsigned half = count / 2; half > 0; half /= 2) {
    for (unsigned lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// min(1, bound / norm).
FLUVIAL_HD double clip_factor(double norm_squared, double bound) {
  const double norm = square_root(norm_squared);
  return norm > bound ? bound / norm : 1.0;
}

}  // namespace fluvial::kernels::ops
