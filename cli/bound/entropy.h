// How small encoded bytes could be at best. Pure.
#pragma once

#include <cstddef>

#include "core/base/bytes.h"

namespace fluvial::cli::bound {

// Order-0 entropy of `bytes` in bytes: Shannon's bound for a coder that knows how often each byte occurs at its place
// in a symbol of `stride` bytes (1 to 8; 4 for fp32, so that exponents are counted apart from fractions) and nothing of
// what stands around it. 0 for no bytes.
double entropy_bytes(ByteSpan bytes, std::size_t stride);

}  // namespace fluvial::cli::bound
