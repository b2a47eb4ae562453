// Words that the tests of this room share.
#pragma once

#include <chrono>
#include <cstdint>
#include <string_view>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/digest/sha256.h"

namespace fluvial::store {

inline constexpr const char* kJournalPath = "/c/journal.db";

inline WallTime at(std::int64_t seconds) { return WallTime(std::chrono::seconds(seconds)); }
inline Digest digest_of(std::string_view text) { return sha256(as_byte_span(text)); }

}  // namespace fluvial::store
