// The loops over vectors, one table of functions a target. Pointers never alias unless a comment allows it, need no
// more alignment than their type, and counts may be zero.
#pragma once

#include <cstddef>
#include <cstdint>

#include "kernels/cpu/target.h"
#include "kernels/ops/philox.h"

namespace fluvial::kernels::cpu {

inline constexpr std::size_t kSquareLanes = 16;

struct Loops {
  // Greatest magnitude, as bits (ops/bits.h).
  std::uint32_t (*max_bits)(const float* x, std::size_t n);
  // The same, and lanes[i % 16] += x[i]^2 in fp64.
  std::uint32_t (*screen)(const float* x, std::size_t n, double* lanes);
  // Indices, increasing, of values whose magnitude bits are at least `threshold`; returns how many. indices holds n.
  std::size_t (*select)(const float* x, std::size_t n, std::uint32_t threshold, std::uint32_t* indices);

  // sum[i] += x[i] * factor, rounded; every |x[i] * factor| is below 2^51 (small) or at most 2^62 (large).
  void (*accumulate_small)(const float* x, std::size_t n, double factor, std::int64_t* sum);
  void (*accumulate_large)(const float* x, std::size_t n, double factor, std::int64_t* sum);
  void (*mean)(const std::int64_t* sum, std::size_t n, double inverse_scale, double total_weight, float* out);

  // sum += add, wrapping; true when one addition left int64.
  bool (*add)(const std::int64_t* add, std::size_t n, std::int64_t* sum);
  void (*subtract)(const std::int64_t* take, std::size_t n, std::int64_t* sum);
  // The bits that a two's complement form needs below its sign bit, or-ed; and how many sums are not zero.
  std::uint64_t (*spread)(const std::int64_t* sum, std::size_t n, std::size_t* nonzero);
  // Low `width` bytes (1 to 8) of each sum, little-endian, and back with the sign extended.
  void (*narrow)(const std::int64_t* sum, std::size_t n, std::size_t width, std::byte* out);
  void (*widen)(const std::byte* bytes, std::size_t n, std::size_t width, std::int64_t* out);

  // The random bits (ops/philox.h) of `groups` groups of 64 coordinates, from group `first_group` on, in the order of
  // the coordinates.
  void (*random)(const ops::RandomStream& stream, std::uint64_t first_group, std::size_t groups, std::uint16_t* out);

  // out = a - b; out may be a or b.
  void (*difference)(const float* a, const float* b, std::size_t n, float* out);
  // out may be any of the inputs; residual may be null: all zero.
  void (*pseudo_gradient)(const float* base, const float* local, const float* residual, std::size_t n, float* out);
  // out = (update + residual) + 0; out may be either; residual may be null: all zero.
  void (*fold)(const float* update, const float* residual, std::size_t n, float* out);
  // sum += weight * x, both rounded to fp32.
  void (*add_scaled)(const float* x, std::size_t n, float weight, float* sum);
  void (*weighted_add)(const float* x, std::size_t n, double weight, double* sum);
  void (*divide)(const double* sum, std::size_t n, double by, float* out);
  void (*sgd)(double lr, const float* mean, std::size_t n, float* model);
  void (*momentum)(double lr, double momentum, const float* mean, std::size_t n, float* moment, float* model);
};

const Loops& loops(Target target);  // one of supported_targets()
inline const Loops& loops() { return loops(best_target()); }

}  // namespace fluvial::kernels::cpu
