// The loops of codec ring that encode and check (it decodes by DenseLoops), one table of functions a target. Pointers
// never alias and need no more alignment than a byte; counts may be zero. Codes are two's complement, little-endian.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

// Of codes of one width.
struct RingWidth {
  // ops/ring.h: inverse = 1 / step, values beyond +-most steps are clipped. x is finite.
  void (*nearest)(const float* x, std::size_t n, float inverse, float most, std::byte* out);
  void (*stochastic)(const float* x, std::size_t n, float inverse, float most, const std::uint16_t* random,
                     std::byte* out);
  // The greatest magnitude of the codes.
  std::uint32_t (*most)(const std::byte* codes, std::size_t n);
};

struct RingLoops {
  RingWidth one, two, three;  // bytes a code
  // Two codes a byte (ops/int8.h).
  std::uint32_t (*most_nibble)(const std::byte* codes, std::size_t n);
};

const RingLoops& ring_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
