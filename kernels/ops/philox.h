// Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011): random bits are a function of a key and a counter, so any coordinate's can be had at any time, anywhere.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

// A contribution's stream. Different (site, round) of a run never share a key and counter.
struct RandomStream {
  std::uint64_t key = 0;
  std::uint64_t counter_high = 0;
};

// SplitMix64's finaliser: a bijection.
FLUVIAL_HD std::uint64_t mix64(std::uint64_t z) {
  z = (z ^ (z >> 30)) * 0xbf58476d1ce4e5b9ULL;
  z = (z ^ (z >> 27)) * 0x94d049bb133111ebULL;
  return z ^ (z >> 31);
}

FLUVIAL_HD RandomStream random_stream(std::uint64_t run, std::uint64_t round, std::uint32_t site) {
  return {mix64(mix64(run + 0x9e3779b97f4a7c15ULL) + site), round};
}

struct Random4 {
  std::uint32_t word[4];
};

// Counter and key words live in 64-bit lanes of which the lower halves count: 32 x 32 -> 64 multiplies vectorise as
// such.
FLUVIAL_HD Random4 philox4x32_10(std::uint64_t counter_low, std::uint64_t counter_high, std::uint64_t key) {
  constexpr std::uint64_t kLow = 0xffffffffULL;
  std::uint64_t c0 = counter_low, c1 = counter_low >> 32, c2 = counter_high, c3 = counter_high >> 32;
  std::uint64_t k0 = key, k1 = key >> 32;
#if defined(__clang__)
#pragma clang loop unroll(full)
#endif
  for (int i = 0; i < 10; ++i) {
    const std::uint64_t p0 = (c0 & kLow) * 0xd2511f53ULL;
    const std::uint64_t p1 = (c2 & kLow) * 0xcd9e8d57ULL;
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c1 = p1;
    c3 = p0;
    k0 += 0x9e3779b9ULL;
    k1 += 0xbb67ae85ULL;
  }
  return {{static_cast<std::uint32_t>(c0), static_cast<std::uint32_t>(c1), static_cast<std::uint32_t>(c2),
           static_cast<std::uint32_t>(c3)}};
}

// Coordinates take their random words in groups of 64: word w of counter 16 * (coordinate / 64) + coordinate % 16, with
// w = coordinate % 64 / 16. So 16 counters side by side give 64 coordinates in order, without shuffling.
constexpr std::uint64_t kRandomGroup = 64;
constexpr std::uint64_t kRandomLanes = 16;

FLUVIAL_HD std::uint32_t random_word(const RandomStream& stream, std::uint64_t coordinate) {
  const std::uint64_t counter = kRandomLanes * (coordinate / kRandomGroup) + coordinate % kRandomLanes;
  return philox4x32_10(counter, stream.counter_high, stream.key).word[coordinate % kRandomGroup / kRandomLanes];
}

}  // namespace fluvial::kernels::ops
