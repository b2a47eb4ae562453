// The reference's own reading of the zstd stage (docs/formats/codecs-zstd.md); the frame alone is libzstd's.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// Whether the codec's text asks for it.
bool asks_for_zstd(std::string_view codec);

// The inner chunk. Nothing for bytes that are no such chunk, or when this build has no libzstd. Reads any length: a
// reader has a bound for it, which the inner chunk's own reading holds to.
std::optional<std::vector<std::byte>> open_zstd(ByteSpan bytes);

}  // namespace fluvial::kernels::reference
