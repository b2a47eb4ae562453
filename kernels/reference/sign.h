// The reference's own reading of sign chunks (docs/formats/codecs-sign.md).
#pragma once

#include <cstddef>
#include <optional>
#include <span>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// Either mode, which stands in the bytes. Nothing for bytes that are not such a chunk.
std::optional<std::vector<double>> decode_sign(ByteSpan bytes, std::size_t value_count);

// The bytes of a chunk of finite values; block_values 0 for a vote.
std::vector<std::byte> encode_sign(std::span<const float> values, std::size_t block_values);

}  // namespace fluvial::kernels::reference
