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

// Selected are magnitudes above `bits`, and those equal to it at coordinates below `ties_end`: min(k, number of
// non-zero values) in all. Zeros are never selected, since what is not sent decodes to zero anyway.
struct Threshold {
  std::uint32_t bits = 1;
  std::uint64_t ties_end = 0;
};

// k is 1 to max(1, vector.size()). The workspace holds kThresholdWorkspaceBytes.
Threshold find_threshold(std::span<const float> vector, std::uint64_t k, MutableByteSpan workspace,
                         const cpu::Loops& loops);

}  // namespace fluvial::kernels
