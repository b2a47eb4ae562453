// The protocol that this build speaks.
#pragma once

#include "core/wire/protocol.h"

namespace fluvial::tree {
using wire::kProtocol;
}  // namespace fluvial::tree
