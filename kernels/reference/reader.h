// The oracle's reader of bytes. For reference/ alone.
#pragma once

#include <cmath>
#include <cstddef>
#include <cstdint>

#include "core/base/bytes.h"

namespace fluvial::kernels::reference {

// Reads little-endian numbers from the front; `ok` turns false for good when bytes are missing.
struct Reader {
  ByteSpan bytes;
  std::size_t at = 0;
  bool ok = true;

  std::uint64_t unsigned_of(std::size_t width) {
    if (bytes.size() - at < width) {
      ok = false;
      return 0;
    }
    std::uint64_t value = 0;
    for (std::size_t i = width; i-- > 0;) value = value * 256 + static_cast<std::uint64_t>(bytes[at + i]);
    at += width;
    return value;
  }
  std::int64_t signed_of(std::size_t width) {
    if (width == 0) return 0;
    const std::uint64_t value = unsigned_of(width);
    if (width == 8) return static_cast<std::int64_t>(value);
    const std::uint64_t sign = std::uint64_t{1} << (8 * width - 1);
    return value >= sign ? static_cast<std::int64_t>(value) - static_cast<std::int64_t>(2 * sign)
                         : static_cast<std::int64_t>(value);
  }
  bool at_end() const { return ok && at == bytes.size(); }
};

// The value of fp32 bits, from sign, exponent and fraction.
inline double value_of_bits(std::uint64_t bits) {
  const double sign = bits >> 31 != 0 ? -1.0 : 1.0;
  const int exponent = static_cast<int>((bits >> 23) & 0xff);
  const auto fraction = static_cast<double>(bits & 0x7fffff);
  if (exponent == 0xff) return fraction == 0 ? sign * INFINITY : NAN;
  if (exponent == 0) return sign * std::ldexp(fraction, -149);
  return sign * std::ldexp(fraction + 0x1p23, exponent - 150);
}

}  // namespace fluvial::kernels::reference
