// The loops of the codecs that have a code for every value, one table of functions a target. Pointers never alias
// unless a comment allows it, need no more alignment than a byte, and counts may be zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

// Operations on decoded values, without storing them in between. fp32, bf16 and fp16 ignore `scale`.
struct ValueLoops {
  void (*decode)(const std::byte* codes, std::size_t n, float scale, float* out);
  // out[i] = x[i] - value; out may be x.
  void (*difference)(const std::byte* codes, std::size_t n, float scale, const float* x, float* out);
  // sum[i] += weight * value, both rounded to fp32.
  void (*add)(const std::byte* codes, std::size_t n, float scale, float weight, float* sum);
  // sum[i] += value * factor, rounded; every |value * factor| is below 2^51.
  void (*accumulate)(const std::byte* codes, std::size_t n, float scale, double factor, std::int64_t* sum);
  // Magnitude bits (ops/bits.h) of a bound of the values; of int8 and int4 the greatest code's, of others the greatest.
  std::uint32_t (*bound)(const std::byte* codes, std::size_t n, float scale);
};

struct DenseLoops {
  ValueLoops fp32, bf16, fp16, int8, int4, int16, int24;

  // Return the greatest magnitude, as bits, of the encoded values.
  std::uint32_t (*bf16_encode)(const float* x, std::size_t n, std::byte* out);
  std::uint32_t (*fp16_encode)(const float* x, std::size_t n, std::byte* out);

  // Codes of one block (ops/rounding.h): inverse = 1 / scale, fine_inverse = 2^14 / scale.
  void (*round_nearest)(const float* x, std::size_t n, float inverse, std::int8_t* out);
  void (*round_stochastic)(const float* x, std::size_t n, float fine_inverse, const std::uint16_t* random,
                           std::int8_t* out);
  // Two codes a byte; the upper nibble of the last byte is 0 if n is odd.
  void (*pack_nibbles)(const std::int8_t* codes, std::size_t n, std::byte* out);
  // Whether one of the nibbles of `bytes` bytes is -8.
  bool (*lowest_nibble)(const std::byte* bytes, std::size_t n);
};

const DenseLoops& dense_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
