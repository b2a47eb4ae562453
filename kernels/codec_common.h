// What the codecs share, beside their public header. Internal to kernels/.
#pragma once

#include <array>
#include <cmath>
#include <cstddef>
#include <cstdint>
#include <memory>
#include <span>

#include "kernels/codec.h"
#include "kernels/cpu/loops.h"

namespace fluvial::kernels {

inline constexpr std::uint32_t kInt8BlockMin = 128;
inline constexpr std::uint32_t kInt8BlockMax = 2048;

// Values are decoded into pieces of this length, which stay in the first-level cache. A multiple of kSquareLanes.
inline constexpr std::size_t kPieceValues = 2048;

Status check_spec(const CodecSpec& spec);

// What every prepare() and encode_chunk() checks of its arguments.
Status check_prepare(const Codec& codec, const VectorSchema& schema, std::span<const float> vector,
                     const PassInput& input, ByteSpan state, ByteSpan workspace);
Status check_encode(const Codec& codec, const EncodePlan& plan, std::size_t chunk_index, std::span<const float> chunk,
                    ByteSpan out);

// weight * 2^scale_bits, exact. kInvalidArgument when the weight is not one.
Result<double> term_factor(std::uint32_t weight, int scale_bits);

// kDataLoss that names the coordinate of the first value that is not finite.
Error not_finite(std::span<const float> values, std::uint64_t first_value);
Error not_screened();  // kDataLoss: a term beyond 2^62

// Lanes of squares (vector.h) to their sum.
double sum_lanes(std::span<double, cpu::kSquareLanes> lanes);

std::unique_ptr<Codec> make_fp32(const CodecSpec& spec, const cpu::Loops& loops);
std::unique_ptr<Codec> make_bf16(const CodecSpec& spec, const cpu::Loops& loops);
std::unique_ptr<Codec> make_int8(const CodecSpec& spec, const cpu::Loops& loops);
std::unique_ptr<Codec> make_topk(const CodecSpec& spec, const cpu::Loops& loops);

}  // namespace fluvial::kernels
