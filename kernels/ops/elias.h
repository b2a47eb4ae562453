// Elias-gamma codes of small signed numbers, as docs/formats/codecs-quantised.md has them: with v = |code| + 1 and
// N = floor(log2(v)), N zero bits, a one, the N lower bits of v, and, when the code is not 0, a bit that is one for a
// negative code; the lowest bit first.
#pragma once

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

constexpr std::uint32_t kEliasZerosMost = 7;  // of 127

struct EliasWord {
  std::uint16_t bits = 0;
  std::uint16_t length = 0;
};

// How many bits a code has that begins with so many zeros: the sign is missing for 0 alone.
FLUVIAL_HD constexpr std::uint32_t elias_length(std::uint32_t zeros) { return zeros == 0 ? 1 : 2 * zeros + 2; }

// Of a code from -127 to 127.
FLUVIAL_HD constexpr EliasWord elias_word(std::int32_t code) {
  const auto v = static_cast<std::uint32_t>(code < 0 ? -code : code) + 1;
  std::uint32_t zeros = 0;
  for (std::uint32_t power = 2; power <= 128; power *= 2) zeros += v >= power ? 1 : 0;
  std::uint32_t bits = 1U << zeros | (v & ((1U << zeros) - 1)) << (zeros + 1);
  if (code < 0) bits |= 1U << (2 * zeros + 1);
  return {static_cast<std::uint16_t>(bits), static_cast<std::uint16_t>(elias_length(zeros))};
}

// The code at the lowest of `bits`, which begin with so many zeros.
FLUVIAL_HD constexpr std::int32_t elias_code(std::uint32_t bits, std::uint32_t zeros) {
  const std::uint32_t below = (1U << zeros) - 1;
  const auto level = static_cast<std::int32_t>(below + (bits >> (zeros + 1) & below));
  return zeros != 0 && (bits >> (2 * zeros + 1) & 1U) != 0 ? -level : level;
}

}  // namespace fluvial::kernels::ops
