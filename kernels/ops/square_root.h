// Square roots, rounded once, as IEEE 754 asks. Without errno, so that loops of them become vector instructions.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

FLUVIAL_HD float square_root(float x) {
#if defined(__CUDA_ARCH__)
  return __fsqrt_rn(x);
#elif defined(__clang__)
  return __builtin_elementwise_sqrt(x);
#else
  return __builtin_sqrtf(x);
#endif
}

FLUVIAL_HD double square_root(double x) {
#if defined(__CUDA_ARCH__)
  return __dsqrt_rn(x);
#elif defined(__clang__)
  return __builtin_elementwise_sqrt(x);
#else
  return __builtin_sqrt(x);
#endif
}

}  // namespace fluvial::kernels::ops
