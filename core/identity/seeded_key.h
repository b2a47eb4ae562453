// Keys that are the same each time: of whoever is simulated. Whoever knows the seed has the key.
#pragma once

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "core/identity/key.h"

namespace fluvial::identity {

// Ed25519, whose signatures follow from key and statement alone.
Result<PrivateKey> seeded_key(const Digest& seed);

}  // namespace fluvial::identity
