// What a power cut leaves of a node's folder, from what its ShadowDisk remembers. After the node's process is dead.
#pragma once

#include <cstdint>
#include <string>

#include "core/base/result.h"

namespace fluvial::chaos {

enum class Unsynced {
  kLost,  // what was not fsynced is gone: contents and names
  kTorn,  // each sector of 512 bytes and each name is the durable one or the newer one, as the seed says
};
std::string_view unsynced_name(Unsynced unsynced);

Status cut_power(const std::string& folder, const std::string& shadow, Unsynced unsynced, std::uint64_t seed);

}  // namespace fluvial::chaos
