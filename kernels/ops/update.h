// The steps of an update: what a site sends and what the server does with the mean.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// Each operation rounds to fp32; adding +0 last turns -0 into +0.
FLUVIAL_HD float pseudo_gradient(float base, float local, float residual) { return ((base - local) + residual) + 0.0F; }

FLUVIAL_HD float folded(float update, float residual) { return (update + residual) + 0.0F; }

FLUVIAL_HD float sign_of(float value) { return value > 0 ? 1.0F : value < 0 ? -1.0F : 0.0F; }

FLUVIAL_HD float sgd_step(double lr, float mean, float model) {
  return static_cast<float>(static_cast<double>(model) - lr * static_cast<double>(mean));
}

FLUVIAL_HD float momentum_step(double momentum, float moment, float mean) {
  return static_cast<float>(momentum * static_cast<double>(moment) + static_cast<double>(mean));
}

}  // namespace fluvial::kernels::ops
