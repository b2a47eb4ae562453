// The loops of the codecs whose codes are small whole numbers times a block's scale (qsgd, terngrad), one table of
// functions a target. Pointers never alias unless a comment allows it, and counts may be zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

struct QsgdLoops {
  // ops/qsgd.h and ops/terngrad.h, value by value, with the random bits of each.
  void (*qsgd_encode)(const float* x, std::size_t n, float fine_inverse, std::int32_t levels,
                      const std::uint16_t* random, std::int8_t* codes);
  void (*terngrad_encode)(const float* x, std::size_t n, float chances, const std::uint16_t* random,
                          std::int8_t* codes);
  // The greatest |code|: 0 to 128.
  std::uint32_t (*most)(const std::int8_t* codes, std::size_t n);
  // The low `width` bits (2 to 8) of each code, lowest bit first, into ceil(n * width / 8) bytes, zero bits after the
  // last; and back, with the sign extended.
  void (*pack)(const std::int8_t* codes, std::size_t n, std::uint32_t width, std::byte* out);
  void (*unpack)(const std::byte* bytes, std::size_t n, std::uint32_t width, std::int8_t* codes);
  // n Elias-gamma codes (ops/elias.h) of magnitudes up to `most`, which must take all of the `size` bytes at `from`,
  // zero bits after the last: false when they do not, and the codes are then anything. Bytes may be read up to from +
  // readable, which is at least from + size.
  bool (*elias_decode)(const std::byte* from, std::size_t size, std::size_t readable, std::uint32_t most, std::size_t n,
                       std::int8_t* codes);
  // Balanced ternary: out[i] = codes[i] + 3 * codes[stride + i] + ... + 81 * codes[4 * stride + i] for i < stride.
  void (*ternary_pack)(const std::int8_t* codes, std::size_t stride, std::int8_t* out);
  // Digit `place` (0 to 4) of each byte.
  void (*ternary_unpack)(const std::int8_t* bytes, std::size_t n, std::int32_t place, std::int8_t* codes);
};

const QsgdLoops& qsgd_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
