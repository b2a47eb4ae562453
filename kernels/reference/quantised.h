// The reference's own reading and writing of qsgd and terngrad chunks (docs/formats/codecs-quantised.md).
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <span>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// Nothing for bytes that are not such a chunk; settings are taken from the bytes.
std::optional<std::vector<double>> decode_qsgd(ByteSpan bytes, std::size_t value_count);
std::optional<std::vector<double>> decode_terngrad(ByteSpan bytes, std::size_t value_count);

// What names the random bits: the stream, and the coordinate of the chunk's first value.
struct Draws {
  std::uint64_t run = 0;
  std::uint64_t round = 0;
  std::uint32_t site = 0;
  std::uint64_t first_coordinate = 0;
};

// The bytes of a chunk of finite values.
std::vector<std::byte> encode_qsgd(std::span<const float> values, std::size_t block_values, unsigned levels, bool elias,
                                   const Draws& draws);
std::vector<std::byte> encode_terngrad(std::span<const float> values, std::size_t block_values, double clip,
                                       const Draws& draws);

}  // namespace fluvial::kernels::reference
