// The protocol that this build speaks.
#pragma once

#include "core/wire/protocol.h"

namespace fluvial::tree {
using wire::kProtocol;
using wire::kProtocolOldest;
}  // namespace fluvial::tree
