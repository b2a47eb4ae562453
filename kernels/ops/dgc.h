// Deep gradient compression (Lin et al., ICLR 2018, algorithm 4).
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// u = momentum * u + the clipped gradient; every operation rounds to fp32.
FLUVIAL_HD float dgc_moment(float momentum, float moment, float gradient, float factor) {
  return momentum * moment + gradient * factor;
}

constexpr std::uint64_t kDgcSteps = 5;

// The part that is sent in a round: more while warming up, sparsity 75, 93.75, 98.4375, 99.6 and 99.9 % (section 3.3).
FLUVIAL_HD double dgc_ratio(double ratio, std::uint64_t warmup_rounds, std::uint64_t round) {
  constexpr double kWarmup[kDgcSteps] = {0.25, 0.0625, 0.015625, 0.004, 0.001};
  if (warmup_rounds == 0) return ratio;
  const std::uint64_t step = (round > 0 ? round - 1 : 0) / warmup_rounds;
  return step < kDgcSteps && kWarmup[step] > ratio ? kWarmup[step] : ratio;
}

}  // namespace fluvial::kernels::ops
