// Philox4x32-10, a counter-based generator (Salmon, Moraes, Dror, Shaw, "Parallel Random Numbers: As Easy as 1, 2, 3",
// SC 2011): random bits are a function of a key and a counter, so any node can make any coordinate's bits at any time.
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

// The four words as they come out of 64-bit lanes: word 1 below word 0, and word 3 below word 2.
struct RandomPairs {
  std::uint64_t pair[2];
};

// Counter and key words live in 64-bit lanes of which the lower halves count: 32 x 32 -> 64 multiplies vectorise as
// such. Words 1 and 3 are the lower halves of the last products, so pairs in this order cost nothing to join.
FLUVIAL_HD RandomPairs philox_pairs(std::uint64_t counter_low, std::uint64_t counter_high, std::uint64_t key) {
  constexpr std::uint64_t kLow = 0xffffffffULL;
  std::uint64_t c0 = counter_low, c1 = counter_low >> 32, c2 = counter_high, c3 = counter_high >> 32;
  std::uint64_t k0 = key, k1 = key >> 32;
#if defined(__clang__)
#pragma clang loop unroll(full)
#endif
  for (int i = 0; i < 9; ++i) {
    const std::uint64_t p0 = (c0 & kLow) * 0xd2511f53ULL;
    const std::uint64_t p1 = (c2 & kLow) * 0xcd9e8d57ULL;
    c0 = (p1 >> 32) ^ c1 ^ k0;
    c2 = (p0 >> 32) ^ c3 ^ k1;
    c1 = p1;
    c3 = p0;
    k0 += 0x9e3779b9ULL;
    k1 += 0xbb67ae85ULL;
  }
  const std::uint64_t p0 = (c0 & kLow) * 0xd2511f53ULL;
  const std::uint64_t p1 = (c2 & kLow) * 0xcd9e8d57ULL;
  return {{p1 ^ (c1 << 32) ^ (k0 << 32), p0 ^ (c3 << 32) ^ (k1 << 32)}};
}

FLUVIAL_HD Random4 philox4x32_10(std::uint64_t counter_low, std::uint64_t counter_high, std::uint64_t key) {
  const RandomPairs pairs = philox_pairs(counter_low, counter_high, key);
  return {{static_cast<std::uint32_t>(pairs.pair[0] >> 32), static_cast<std::uint32_t>(pairs.pair[0]),
           static_cast<std::uint32_t>(pairs.pair[1] >> 32), static_cast<std::uint32_t>(pairs.pair[1])}};
}

// Every coordinate has 16 random bits of its own, so a counter serves eight coordinates. They come in groups of 64
// from 8 counters: with lane = coordinate % 32 / 4, counter 8 * (coordinate / 64) + lane gives 4 coordinates in a row
// from its first pair and 4 more, 32 further on, from its second: no shuffling in vectors, and four in a row for a
// thread.
constexpr std::uint64_t kRandomGroup = 64;
constexpr std::uint64_t kRandomLanes = 8;

FLUVIAL_HD std::uint16_t random_bits(const RandomStream& stream, std::uint64_t coordinate) {
  const std::uint64_t counter = kRandomLanes * (coordinate / kRandomGroup) + coordinate % 32 / 4;
  const RandomPairs pairs = philox_pairs(counter, stream.counter_high, stream.key);
  return static_cast<std::uint16_t>(pairs.pair[coordinate % 64 / 32] >> (16 * (coordinate % 4)));
}

}  // namespace fluvial::kernels::ops
