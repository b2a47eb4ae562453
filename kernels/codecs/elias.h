// Elias-gamma codes for small signed numbers (Elias, "Universal codeword sets and representations of the integers",
// IEEE Trans. Inf. Theory 21, 1975), as QSGD's section 3.2 uses them for levels; ops/elias.h has the bits. Internal.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <string_view>

#include "core/base/bytes.h"

namespace fluvial::kernels {

inline constexpr std::uint32_t kEliasMost = 127;      // |code|
inline constexpr std::size_t kEliasCodeBitsMax = 16;  // N = 7, and the sign

// The bytes that `value_count` codes take at most.
constexpr std::size_t elias_bytes_max(std::size_t value_count) { return value_count * kEliasCodeBitsMax / 8; }

// Writes the codes, each -127 to 127, from a byte's lowest bit on, with zero bits after the last; returns how many
// bytes. `out` has room for elias_bytes_max(codes.size()) + 8 bytes.
std::size_t elias_encode(std::span<const std::int8_t> codes, std::byte* out);

// Explains what cpu/qsgd_loops.h refuses without a reason. Reads exactly codes.size() codes of magnitudes up to `most`
// from all of `bytes`. Returns what is wrong with them, and at which code; an empty text when nothing is. Reads no byte
// outside, and takes one step for each code, whatever the bytes.
struct EliasFault {
  std::string_view what;
  std::size_t code_index = 0;
};
EliasFault elias_decode(ByteSpan bytes, std::uint32_t most, std::span<std::int8_t> codes);

}  // namespace fluvial::kernels
