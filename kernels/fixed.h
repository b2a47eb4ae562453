// The exact sum: int64 fixed point (docs/design, docs/formats/codecs.md).
//
// A contribution adds round(value * weight * 2^scale_bits), rounded once, half to even, to an int64. Integer addition
// is associative, so a sum depends on what it holds and not on order, threads or the shape of the tree.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "core/base/bytes.h"
#include "core/base/result.h"

namespace fluvial::kernels {

inline constexpr std::uint32_t kWeightEnd = std::uint32_t{1} << 29;     // weights are 1 to kWeightEnd - 1
inline constexpr std::uint64_t kWeightSumEnd = std::uint64_t{1} << 53;  // sums of weights are exact in fp64
inline constexpr int kScaleBitsMin = -128;                              // what scale_bits() can give
inline constexpr int kScaleBitsMax = 128;
inline constexpr double kSumMax = 0x1p62;  // the greatest magnitude of a sum, and so of each term

// min(fraction_bits, 62 - ceil(log2(max_abs * weight_sum))): with every |value| <= max_abs and all weights together at
// most weight_sum, every partial sum stays below 2^62 + one half a contributor, so it cannot overflow.
// kInvalidArgument unless 0 < max_abs <= 2^127, 1 <= weight_sum < kWeightSumEnd and |fraction_bits| <= kScaleBitsMax.
Result<int> scale_bits(int fraction_bits, double max_abs, std::uint64_t weight_sum);

// out = fp32(fp64(sum) * 2^-scale_bits / fp64(total_weight)): int64 to fp64 rounds once, the power of two is exact, one
// division rounds, the conversion to fp32 rounds; all half to even. 1 <= total_weight < kWeightSumEnd.
void mean_of_sums(std::span<const std::int64_t> sum, int scale_bits, std::uint64_t total_weight, std::span<float> out);

// Partial chunks: int64 sums packed as narrow as they fit (0 to 8 bytes each), or sparse while that is smaller.
std::size_t packed_bytes_max(std::size_t value_count);
// Returns the bytes used of `out`, which holds packed_bytes_max(sum.size()). The same sums give the same bytes.
std::size_t pack_chunk(std::span<const std::int64_t> sum, MutableByteSpan out);
// Everything a hostile peer could get wrong about a packed chunk of value_count sums; kDataLoss says what.
Status check_packed_chunk(ByteSpan bytes, std::size_t value_count);
// Checks as above, then adds. The scale bound makes overflow impossible among honest nodes, but it is still checked
// (sign rule on every addition). On overflow the addition is undone: kDataLoss, and no sum changed.
Status merge_chunk(ByteSpan bytes, std::span<std::int64_t> sum);

}  // namespace fluvial::kernels
