// How far apart clocks may be.
#pragma once

#include <cstdint>

#include "core/base/clock.h"

namespace fluvial {

// Beyond it no time is added to another any more: some 36 years either way, far from where Duration ends.
inline constexpr Duration kClockFarthest{std::int64_t{1} << 60};

// Wall clocks that are further apart are a problem that people are told of. The alert FluvialClocksApart has the same.
inline constexpr Duration kWallClocksApart = std::chrono::seconds(5);

}  // namespace fluvial
