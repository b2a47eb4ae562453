// The loops of the robust rules (kernels/robust.h). Pointers never alias and need no more alignment than their type;
// counts may be zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/loops.h"
#include "kernels/cpu/target.h"

namespace fluvial::kernels::cpu {

struct RobustLoops {
  // Sort keys (ops/robust.h) of x. Returns 0 if all values are finite, otherwise not 0.
  std::uint32_t (*keys)(const float* x, std::size_t n, std::int32_t* key);
  // low[i], high[i] = min, max of the two.
  void (*exchange)(std::int32_t* low, std::int32_t* high, std::size_t n);
  // Back from keys, widened.
  void (*values)(const std::int32_t* key, std::size_t n, double* out);
  // out[i] = fp32((a + b) / 2), the sum in fp64; the two are keys.
  void (*middle)(const std::int32_t* a, const std::int32_t* b, std::size_t n, float* out);
  // sum += the values of the keys, in fp64.
  void (*add_keys)(const std::int32_t* key, std::size_t n, double* sum);
  // Keys with a weight: entry = key * 2^32 + weight, in the order of the keys.
  void (*entries)(const std::int32_t* key, std::size_t n, std::uint32_t weight, std::int64_t* entry);
  void (*exchange_entries)(std::int64_t* low, std::int64_t* high, std::size_t n);
  // The next of the sorted entries of each column: reached += its weight; low and high become its value while what was
  // reached before is below half of `total`, and not above it.
  void (*reach_half)(const std::int64_t* entry, std::size_t n, std::int64_t total, std::int64_t* reached, double* low,
                     double* high);
  // The next entries, too: sum += value times the part of the weight between `from` and `to`; the product is exact.
  void (*add_between)(const std::int64_t* entry, std::size_t n, std::int64_t from, std::int64_t to,
                      std::int64_t* reached, double* sum);
  // lanes[i % 16] += (a[i] - b[i])^2, in fp64.
  void (*distance)(const float* a, const float* b, std::size_t n, double* lanes);
  void (*distance_to)(const double* center, const float* x, std::size_t n, double* lanes);
};

const RobustLoops& robust_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
