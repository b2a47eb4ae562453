// What an update brings for its probe: one fp32 value behind its integers, under the same digest, which is 1. Sums add
// it as they add the update's values, at the site's weight: what comes out says whether the site's bytes were added
// once.
#pragma once

#include <array>
#include <bit>
#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"

namespace fluvial::round {

inline constexpr std::size_t kProbeBytes = sizeof(float);
using ProbeBytes = std::array<std::byte, kProbeBytes>;

inline ProbeBytes probe_bytes() {
  ProbeBytes bytes{};
  store_le<std::uint32_t>(bytes.data(), std::bit_cast<std::uint32_t>(1.0F));
  return bytes;
}

}  // namespace fluvial::round
