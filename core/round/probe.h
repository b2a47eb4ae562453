// An update's probe: one fp32 value, which is 1, behind its integers and under the same digest. A sum adds it as it
// adds the update's values, with the site's weight. The result tells whether the site's bytes were added exactly once.
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
