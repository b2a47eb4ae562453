// Deep gradient compression (Lin et al., ICLR 2018, algorithm 4).
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// u = momentum * u + the clipped gradient; every operation rounds to fp32.
FLUVIAL_HD float dgc_moment(float momentum, float moment, float gradient, float factor) {
  return momentum * moment + gradient * factor;
}

}  // namespace fluvial::kernels::ops
