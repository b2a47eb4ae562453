// Randomness for keys, tokens and jitter seeds, from OpenSSL's generator. Thread safe. Stops the process when the
// machine has no entropy: a guessable secret is worse than none.
#pragma once

#include <cstdint>

#include "core/base/bytes.h"

namespace fluvial::identity {

void random_bytes(MutableByteSpan out);
std::uint64_t random_u64();

}  // namespace fluvial::identity
