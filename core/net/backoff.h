// The waits between attempts to connect, under the name that this room's users know it by.
#pragma once

#include "core/base/backoff.h"

namespace fluvial::net {

using fluvial::Backoff;
using fluvial::BackoffSettings;

}  // namespace fluvial::net
