// The loops of low-rank factors (codecs/powersgd.h): a matrix M (rows x cols, row-major) times Q, its transpose times
// P, and M minus P Q^T. Factors are stored one column after the other: P as `rank` columns of `rows` values, Q as
// `rank` columns of `cols` values. Which sums are taken in which order is part of the definition, so every target gives
// the same bits, and so does any way of cutting M into parts. Pointers never alias unless a comment allows it and need
// no more alignment than their type; counts may be zero, rank is 1 to kLowrankRankMax.
#pragma once

#include <cstddef>

#include "kernels/cpu/target.h"
#include "kernels/ops/lowrank.h"

namespace fluvial::kernels::cpu {

using ops::kLowrankCols;
using ops::kLowrankGroup;
using ops::kLowrankLanes;
using ops::kLowrankRankMax;
using ops::kLowrankRows;

struct LowrankLoops {
  // P = M Q for `rows` rows of M; column k of P goes to p + k * p_stride. In blocks of kLowrankCols columns of M, lane
  // l of 16 adds in fp32 the products (rounded to fp32) at l, l + 16, ... of the block; lanes l and l + 8, then l and
  // l + 4, ... are added in fp64, then the blocks, in order, in fp64; the sum rounds to fp32.
  void (*project)(const float* m, std::size_t rows, std::size_t cols, const float* q, std::size_t rank, float* p,
                  std::size_t p_stride);
  // Q = M^T P for columns first to first + count - 1 of M, which is given from its beginning, as are p and q. In blocks
  // of kLowrankRows rows: the products of each group of 8 rows are added in fp32 in order of the rows (in what is left
  // behind the last whole group each row is a group), the groups of the block in fp32 in order, the blocks in fp64 in
  // order; the sum rounds to fp32. `sums` is scratch of the size of q.
  void (*project_back)(const float* m, std::size_t rows, std::size_t cols, std::size_t first, std::size_t count,
                       const float* p, std::size_t rank, double* sums, float* q);
  // Values first to first + count - 1 of M, counted along its rows: out = m - a, where a is the sum over k, in order,
  // of p[row, k] * q[col, k], each operation rounded to fp32. `m` and `out` point to value `first`; out may be m.
  void (*leave)(const float* m, std::size_t first, std::size_t count, std::size_t rows, std::size_t cols,
                const float* p, const float* q, std::size_t rank, float* out);
  // out = a + 0.
  void (*expand)(std::size_t first, std::size_t count, std::size_t rows, std::size_t cols, const float* p,
                 const float* q, std::size_t rank, float* out);

  // fp64: lane l of 16 adds the products at l, l + 16, ...; then lanes l and l + 8, l and l + 4, ...
  double (*dot)(const double* a, const double* b, std::size_t n);                     // a may be b
  void (*subtract_scaled)(double factor, const double* x, std::size_t n, double* y);  // y = y - factor * x
};

const LowrankLoops& lowrank_loops(Target target);  // one of supported_targets()

}  // namespace fluvial::kernels::cpu
