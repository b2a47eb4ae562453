#include "cli/bound/entropy.h"

#include <array>
#include <cmath>
#include <cstdint>

namespace fluvial::cli::bound {

double entropy_bytes(ByteSpan bytes, std::size_t stride) {
  double bits = 0;
  for (std::size_t place = 0; place < stride; ++place) {
    std::array<std::uint64_t, 256> counts = {};
    std::uint64_t total = 0;
    for (std::size_t i = place; i < bytes.size(); i += stride, ++total)
      ++counts[std::to_integer<std::size_t>(bytes[i])];
    for (const std::uint64_t count : counts) {
      if (count == 0) continue;
      bits += static_cast<double>(count) * std::log2(static_cast<double>(total) / static_cast<double>(count));
    }
  }
  return bits / 8;
}

}  // namespace fluvial::cli::bound
