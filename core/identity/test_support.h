#pragma once

#include "core/base/clock.h"

namespace fluvial::identity {

inline WallTime wall_now() { return SystemClock().wall_now(); }

}  // namespace fluvial::identity
