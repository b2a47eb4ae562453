// The exact threshold of the k greatest magnitudes, by radix selection on their bits (11, 10 and 10 of the 31).
// Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "kernels/cpu/loops.h"

namespace fluvial::kernels {

inline constexpr std::size_t kThresholdBins = 2048;
inline constexpr std::size_t kThresholdWays =
    4;  // histograms side by side: equal neighbours do not wait for each other
inline constexpr std::size_t kThresholdWorkspaceBytes = kThresholdBins * kThresholdWays * sizeof(std::uint64_t);

// The k-th greatest magnitude, as bits: selected are those above it and `ties` of the `equal` ones that equal it. Bits
// 1 and all of them when fewer than k values are not zero.
struct Kth {
  std::uint32_t bits = 1;
  std::uint64_t ties = 0;
  std::uint64_t equal = 0;
};

// k is 1 to max(1, values.size()). The workspace holds kThresholdWorkspaceBytes.
Kth find_kth(std::span<const float> values, std::uint64_t k, MutableByteSpan workspace, const cpu::Loops& loops);

// Selected are magnitudes above `bits`, and those equal to it at coordinates below `ties_end`: min(k, number of
// non-zero values) in all. Zeros are never selected, since coordinates that are not sent decode to zero anyway.
struct Threshold {
  std::uint32_t bits = 1;
  std::uint64_t ties_end = 0;
};

Threshold find_threshold(std::span<const float> vector, std::uint64_t k, MutableByteSpan workspace,
                         const cpu::Loops& loops);

}  // namespace fluvial::kernels
