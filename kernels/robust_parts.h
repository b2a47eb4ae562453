// What the sources of robust.h share. Internal to kernels/.
#pragma once

#include "kernels/robust.h"

namespace fluvial::kernels {

// kInvalidArgument for a number of updates out of bounds; each of them holds value_count values.
Status check_updates(Updates updates, std::size_t value_count);

}  // namespace fluvial::kernels
