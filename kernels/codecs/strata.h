// One coordinate of each of k strata of a chunk, drawn by a counter-based generator: increasing by construction, the
// same for everyone who has the seed, without a list. Source: stratified sampling with one unit a stratum (Cochran,
// "Sampling Techniques", 1977, section 5A); each coordinate is drawn with probability 1 / (size of its stratum).
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "kernels/ops/strata.h"

namespace fluvial::kernels {

// Stratum j of n coordinates in k strata, 1 <= k <= n < 2^32, is floor(j * n / k) to floor((j + 1) * n / k) - 1. Of it
// the coordinate first + floor(size * word / 2^32) is drawn; 2^32 is no multiple of every size, which moves a
// probability by at most 2^-32. `word` is word j % 4 of Philox4x32-10 with the seed as the key and the counter j / 4.
class Strata {
 public:
  Strata() = default;
  Strata(std::uint64_t seed, std::size_t count, std::size_t value_count);

  // The coordinates of the next out.size() strata; there are as many.
  void read(std::span<std::uint32_t> out) { read(out, {}); }
  // And the sizes of the strata, when `sizes` is not empty.
  void read(std::span<std::uint32_t> out, std::span<std::uint32_t> sizes);

 private:
  std::uint64_t seed_ = 0;
  std::uint64_t count_ = 1;
  std::uint64_t quotient_ = 0, remainder_ = 0;  // of n / k
  std::uint64_t stratum_ = 0;
  std::uint64_t first_ = 0, first_rest_ = 0;  // of the stratum: j * n = first * k + rest
};

}  // namespace fluvial::kernels
