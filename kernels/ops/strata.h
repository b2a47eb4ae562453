// One coordinate of each of k strata of a chunk: what randk sends (docs/formats/codecs-sparse.md).
#pragma once

#include "kernels/ops/philox.h"

namespace fluvial::kernels::ops {

// The seed of a chunk: of its round and its first coordinate, not of a site, so that all sites draw alike.
FLUVIAL_HD std::uint64_t strata_seed(std::uint64_t run, std::uint64_t round, std::uint64_t first_value) {
  return mix64(mix64(mix64(run + 0x9e3779b97f4a7c15ULL) + round) + first_value);
}

struct Stratum {
  std::uint32_t first;
  std::uint32_t size;
};

// Stratum `index` of n coordinates in `count` strata, 1 <= count <= n < 2^32.
FLUVIAL_HD Stratum stratum_at(std::uint64_t index, std::uint64_t count, std::uint64_t value_count) {
  const std::uint64_t first = index * value_count / count;
  return {static_cast<std::uint32_t>(first), static_cast<std::uint32_t>((index + 1) * value_count / count - first)};
}

// The coordinate that is drawn from it.
FLUVIAL_HD std::uint32_t drawn_from(const Stratum& stratum, std::uint32_t word) {
  return stratum.first + static_cast<std::uint32_t>((std::uint64_t{stratum.size} * word) >> 32);
}

// A value that stands for its whole stratum. Finite in, finite out.
FLUVIAL_HD float stratum_value(float value, std::uint32_t size) {
  constexpr float kMost = 0x1.fffffep127F;
  const float scaled = value * static_cast<float>(size);
  return scaled > kMost ? kMost : (scaled < -kMost ? -kMost : scaled);
}

}  // namespace fluvial::kernels::ops
