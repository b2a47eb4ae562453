// The oracle: naive, fp64 or exact integers, one value at a time, written from docs/formats/codecs.md and sharing no
// code with the kernels (its own parsing of every format too). Slow on purpose. For tests, and for benchmarks that
// check their sums.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// Decodes an encoded chunk of value_count values. `codec` is the codec's text ("int8:block=512"); only its name counts,
// everything else is in the bytes. Every decoded value is an fp32 value. Nothing for bytes that are not such a chunk,
// or when a value is not finite.
std::optional<std::vector<double>> decode(std::string_view codec, ByteSpan bytes, std::size_t value_count);

// Unpacks a partial chunk.
std::optional<std::vector<std::int64_t>> unpack(ByteSpan bytes, std::size_t value_count);

// round(value * weight * 2^scale_bits), half to even, from the bits of the value, in exact integer arithmetic.
// Nothing when the result is beyond 2^62.
std::optional<std::int64_t> fixed_term(double fp32_value, std::uint32_t weight, int scale_bits);

// fp32(fp64(sum) * 2^-scale_bits / fp64(total_weight)).
float mean(std::int64_t sum, int scale_bits, std::uint64_t total_weight);

// min(fraction_bits, 62 - ceil(log2(max_abs * weight_sum))), by trying exponents.
int scale_bits(int fraction_bits, double max_abs, std::uint64_t weight_sum);

// The 16 random bits of a coordinate in the stream (run, round, site).
std::uint32_t random_bits(std::uint64_t run, std::uint64_t round, std::uint32_t site, std::uint64_t coordinate);

// The coordinates of the k greatest magnitudes, ties to the lowest coordinate, by sorting; zeros left out; increasing.
std::vector<std::size_t> top_k(std::span<const float> values, std::size_t k);

}  // namespace fluvial::kernels::reference
