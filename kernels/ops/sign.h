// 1-bit sign with a scale a block (EF-signSGD: Karimireddy, Rebjock, Stich, Jaggi, "Error Feedback Fixes SignSGD and
// other Gradient Compression Schemes", ICML 2019, algorithm 1): C(p) = mean|p| * sign(p).
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

constexpr std::size_t kSignLanes = 16;

// 1 for a value below zero. Both zeros count as positive: sign(0) = +1.
FLUVIAL_HD std::uint32_t sign_bit(float value) { return value < 0.0F ? 1U : 0U; }

// Lane i of 16 holds the |values| at i, i + 16, ... of the block, added in order in fp64; then lanes i and i + 8, i and
// i + 4, i and i + 2, 0 and 1 are added. Infinite or NaN when, and only when, one of the values is.
FLUVIAL_HD double sign_sum(double* lanes) {
  for (std::size_t half = kSignLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

// The mean magnitude: divided in fp64, rounded to fp32. Finite when the sum is, as no mean exceeds the greatest value.
FLUVIAL_HD float sign_scale(double sum, std::size_t count) {
  return static_cast<float>(sum / static_cast<double>(count));
}

// `bit` is 0 or 1.
FLUVIAL_HD float sign_value(std::uint32_t bit, float scale) { return bits_float(float_bits(scale) ^ (bit << 31)); }

FLUVIAL_HD std::int64_t sign_term(std::uint32_t bit, std::int64_t term) { return bit != 0 ? -term : term; }

}  // namespace fluvial::kernels::ops
