// The protocol of members' sessions, which both ends of an edge of the tree name in Hello and Welcome.
#pragma once

#include <cstdint>

namespace fluvial::wire {
inline constexpr std::uint32_t kProtocol = 2;
// A parent takes children that speak this one, too: their updates bring no probe. So parents are updated first.
inline constexpr std::uint32_t kProtocolOldest = 1;
}  // namespace fluvial::wire
