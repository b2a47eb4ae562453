// The protocol of members' sessions, which both ends of an edge of the tree name in Hello and Welcome.
#pragma once

#include <cstdint>

namespace fluvial::wire {
inline constexpr std::uint32_t kProtocol = 1;
}  // namespace fluvial::wire
