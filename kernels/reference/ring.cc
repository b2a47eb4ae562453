#include "kernels/reference/ring.h"

#include <algorithm>
#include <cmath>

#include "kernels/reference/reader.h"

namespace fluvial::kernels::reference {
namespace {

std::int64_t most_of(std::uint64_t bits) { return (std::int64_t{1} << (bits - 1)) - 1; }

// The nearest whole number, of two the even one.
double nearest(double value) {
  const double below = std::floor(value);
  const double rest = value - below;
  if (rest == 0.5) return std::fmod(below, 2.0) == 0 ? below : below + 1;
  return rest < 0.5 ? below : below + 1;
}

}  // namespace

std::optional<std::vector<double>> decode_ring(ByteSpan bytes, std::size_t value_count) {
  Reader reader{.bytes = bytes};
  if (reader.unsigned_of(1) != 1) return std::nullopt;
  const std::uint64_t bits = reader.unsigned_of(1);
  const std::int64_t fraction_bits = reader.signed_of(2);
  if (reader.unsigned_of(4) != 0 || !reader.ok || bits < 2 || bits > 24) return std::nullopt;
  if (fraction_bits < -100 || fraction_bits > 123) return std::nullopt;
  std::vector<double> values(value_count);
  std::uint64_t pair = 0;
  for (std::size_t i = 0; i < value_count; ++i) {
    std::int64_t code = 0;
    if (bits > 4) {
      code = reader.signed_of(bits <= 8 ? 1 : bits <= 16 ? 2 : 3);
    } else {
      if (i % 2 == 0) pair = reader.unsigned_of(1);
      code = static_cast<std::int64_t>(i % 2 == 0 ? pair % 16 : pair / 16);
      if (code >= 8) code -= 16;
    }
    if (code < -most_of(bits) || code > most_of(bits)) return std::nullopt;
    values[i] = std::ldexp(static_cast<double>(code), -static_cast<int>(fraction_bits));
  }
  if (bits <= 4 && value_count % 2 != 0 && pair / 16 != 0) return std::nullopt;
  if (!reader.at_end()) return std::nullopt;
  return values;
}

int ring_fraction_bits(std::uint32_t bits, double max) {
  int fraction_bits = 200;
  while (std::ldexp(max, fraction_bits) > static_cast<double>(most_of(bits))) --fraction_bits;
  return fraction_bits;
}

std::int64_t ring_code(float value, std::uint32_t bits, int fraction_bits, std::optional<std::uint32_t> random) {
  const auto most = static_cast<double>(most_of(bits));
  const double steps = std::clamp(std::ldexp(static_cast<double>(value), fraction_bits), -most, most);
  if (!random) return static_cast<std::int64_t>(nearest(steps));
  const double units = nearest(steps * 16'384);
  return static_cast<std::int64_t>(std::floor((units + std::floor(*random / 4.0)) / 16'384));
}

}  // namespace fluvial::kernels::reference
