// An fp32 value as an integer that sorts as the value does: -0 below +0, so that the order is total and sorting gives
// the same bits everywhere. And the rules' arithmetic on sorted values.
#pragma once

#include <cstddef>

#include "kernels/ops/bits.h"

namespace fluvial::kernels::ops {

FLUVIAL_HD std::int32_t sort_key(float value) {
  const std::int32_t bits = static_cast<std::int32_t>(float_bits(value));
  return bits ^ ((bits >> 31) & 0x7fffffff);
}

FLUVIAL_HD float key_value(std::int32_t key) {
  return bits_float(static_cast<std::uint32_t>(key ^ ((key >> 31) & 0x7fffffff)));
}

// A key with a weight: sorted by the key first.
FLUVIAL_HD std::int64_t weighted_entry(std::int32_t key, std::uint32_t weight) {
  return static_cast<std::int64_t>(key) * (std::int64_t{1} << 32) + weight;
}
FLUVIAL_HD double entry_value(std::int64_t entry) {
  return static_cast<double>(key_value(static_cast<std::int32_t>(entry >> 32)));
}
FLUVIAL_HD std::int64_t entry_weight(std::int64_t entry) { return entry & 0xffffffff; }

// How much of the weight from `before` to `after` lies between `from` and `to`.
FLUVIAL_HD std::int64_t weight_between(std::int64_t before, std::int64_t after, std::int64_t from, std::int64_t to) {
  const std::int64_t begin = before > from ? before : from;
  const std::int64_t end = after < to ? after : to;
  return end > begin ? end - begin : 0;
}

// Bulyan's second half for a coordinate, of n sorted keys that are `stride` apart: robust.h.
FLUVIAL_HD float mean_around_median(const std::int32_t* keys, std::size_t stride, std::size_t n, std::size_t f) {
  const auto low = static_cast<double>(key_value(keys[(n - 1) / 2 * stride]));
  const auto high = static_cast<double>(key_value(keys[n / 2 * stride]));
  const double median = (low + high) * 0.5;
  std::size_t first = 0;
  std::size_t last = n - 1;
  for (std::size_t k = 0; k < 2 * f; ++k) {
    const auto least = static_cast<double>(key_value(keys[first * stride]));
    const auto greatest = static_cast<double>(key_value(keys[last * stride]));
    if (median - least > greatest - median) {
      ++first;
    } else {
      --last;
    }
  }
  double sum = 0;
  for (std::size_t rank = first; rank <= last; ++rank) sum += static_cast<double>(key_value(keys[rank * stride]));
  return static_cast<float>(sum / static_cast<double>(n - 2 * f));
}

}  // namespace fluvial::kernels::ops
