#include "kernels/codecs/strata.h"

namespace fluvial::kernels {

Strata::Strata(std::uint64_t seed, std::size_t count, std::size_t value_count)
    : seed_(seed), count_(count), quotient_(value_count / count), remainder_(value_count % count) {}

void Strata::read(std::span<std::uint32_t> out, std::span<std::uint32_t> sizes) {
  constexpr std::uint64_t kWords = 4;  // of a counter
  ops::Random4 random = ops::philox4x32_10(stratum_ / kWords, 0, seed_);
  for (std::size_t i = 0; i < out.size(); ++i) {
    std::uint64_t size = quotient_;
    first_rest_ += remainder_;
    if (first_rest_ >= count_) {
      first_rest_ -= count_;
      ++size;
    }
    const ops::Stratum stratum{static_cast<std::uint32_t>(first_), static_cast<std::uint32_t>(size)};
    out[i] = ops::drawn_from(stratum, random.word[stratum_ % kWords]);
    if (!sizes.empty()) sizes[i] = stratum.size;
    first_ += size;
    ++stratum_;
    if (stratum_ % kWords == 0) random = ops::philox4x32_10(stratum_ / kWords, 0, seed_);
  }
}

}  // namespace fluvial::kernels
