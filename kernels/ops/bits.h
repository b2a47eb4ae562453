// The building blocks of the scalar operations. Each operation in this folder is one function that the CPU loops and
// the CUDA kernels both include, so the arithmetic is written once; no contraction, no fast-math, round half to even.
#pragma once

#include <cstdint>

#if defined(__CUDACC__)
#define FLUVIAL_HD __host__ __device__ __forceinline__
#else
// Always inlined: the operations take on the instruction set of the loop around them.
#define FLUVIAL_HD inline __attribute__((always_inline))
#endif

namespace fluvial::kernels::ops {

constexpr std::uint32_t kInfinityBits = 0x7f800000U;  // magnitudes from here on are infinite or NaN
constexpr std::uint32_t kMagnitudeMask = 0x7fffffffU;
constexpr float kMinNormal = 0x1p-126F;

FLUVIAL_HD std::uint32_t float_bits(float value) { return __builtin_bit_cast(std::uint32_t, value); }
FLUVIAL_HD float bits_float(std::uint32_t bits) { return __builtin_bit_cast(float, bits); }

// |value| as an integer: ordered as the magnitudes are, NaN above infinity.
FLUVIAL_HD std::uint32_t magnitude_bits(float value) { return float_bits(value) & kMagnitudeMask; }

}  // namespace fluvial::kernels::ops
