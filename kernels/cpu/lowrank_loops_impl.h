// Low-rank factors, once, for each_target.h. Lanes are vectors of a fixed length, which the compiler cuts to the
// target's registers: the same values are added in the same order everywhere. Tiles differ by target; they group the
// work, and do not change which values are added in which order.

#define FLUVIAL_RESTRICT __restrict__

namespace fluvial::kernels::cpu::FLUVIAL_TARGET {
namespace {

#if defined(FLUVIAL_TARGET_AVX512)
constexpr std::size_t kTileRows = 4, kTileRank = 4;
#elif defined(FLUVIAL_TARGET_AVX2)
constexpr std::size_t kTileRows = 2, kTileRank = 2;
#else
constexpr std::size_t kTileRows = 1, kTileRank = 2;
#endif
constexpr std::size_t kLeaveRows = 4;
constexpr std::size_t kAhead = 64;  // values; the rows of a tile are more streams than the hardware follows well

// By reference: to return a vector depends on the instruction set.
FLUVIAL_HD void load(const float* from, Lanes& lanes) { __builtin_memcpy(&lanes, from, sizeof(lanes)); }
FLUVIAL_HD void load_part(const float* from, std::size_t count, Lanes& lanes) {  // zeros behind
  lanes = Lanes{};
  __builtin_memcpy(&lanes, from, count * sizeof(float));
}
FLUVIAL_HD void store(const Lanes& lanes, float* to) { __builtin_memcpy(to, &lanes, sizeof(lanes)); }

FLUVIAL_HD double sum_of(double* lanes) {
  for (std::size_t half = kLowrankLanes / 2; half > 0; half /= 2) {
    for (std::size_t lane = 0; lane < half; ++lane) lanes[lane] += lanes[lane + half];
  }
  return lanes[0];
}

FLUVIAL_HD double wide_sum_of(const Lanes& lanes) {
  double wide[kLowrankLanes];
  for (std::size_t lane = 0; lane < kLowrankLanes; ++lane) wide[lane] = static_cast<double>(lanes[lane]);
  return sum_of(wide);
}

// sums[k * R + r] += row r times column k, over one block of columns.
template <std::size_t R, std::size_t K>
void project_tile(const float* FLUVIAL_RESTRICT m, std::size_t cols, std::size_t count, const float* FLUVIAL_RESTRICT q,
                  double* FLUVIAL_RESTRICT sums) {
  Lanes lanes[R][K] = {};
  std::size_t j = 0;
  for (; j + kLowrankLanes <= count; j += kLowrankLanes) {
    Lanes column[K];
    for (std::size_t k = 0; k < K; ++k) load(q + k * cols + j, column[k]);
    for (std::size_t r = 0; r < R; ++r) {
      __builtin_prefetch(m + r * cols + j + kAhead);
      Lanes x;
      load(m + r * cols + j, x);
      for (std::size_t k = 0; k < K; ++k) lanes[r][k] = lanes[r][k] + x * column[k];
    }
  }
  if (j < count) {
    Lanes column[K];
    for (std::size_t k = 0; k < K; ++k) load_part(q + k * cols + j, count - j, column[k]);
    for (std::size_t r = 0; r < R; ++r) {
      Lanes x;
      load_part(m + r * cols + j, count - j, x);
      for (std::size_t k = 0; k < K; ++k) lanes[r][k] = lanes[r][k] + x * column[k];
    }
  }
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t k = 0; k < K; ++k) sums[k * R + r] += wide_sum_of(lanes[r][k]);
  }
}

template <std::size_t R>
void project_rows(const float* m, std::size_t cols, const float* q, std::size_t rank, float* p, std::size_t p_stride) {
  double sums[kLowrankRankMax * R];
  for (std::size_t i = 0; i < rank * R; ++i) sums[i] = 0;
  for (std::size_t first = 0; first < cols; first += kLowrankCols) {
    const std::size_t count = cols - first < kLowrankCols ? cols - first : kLowrankCols;
    std::size_t k = 0;
    for (; k + kTileRank <= rank; k += kTileRank) {
      project_tile<R, kTileRank>(m + first, cols, count, q + k * cols + first, sums + k * R);
    }
    if (k + 2 <= rank) {
      project_tile<R, 2>(m + first, cols, count, q + k * cols + first, sums + k * R);
      k += 2;
    }
    if (k < rank) project_tile<R, 1>(m + first, cols, count, q + k * cols + first, sums + k * R);
  }
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t r = 0; r < R; ++r) p[k * p_stride + r] = static_cast<float>(sums[k * R + r]);
  }
}

void project(const float* m, std::size_t rows, std::size_t cols, const float* q, std::size_t rank, float* p,
             std::size_t p_stride) {
  std::size_t i = 0;
  for (; i + kTileRows <= rows; i += kTileRows) project_rows<kTileRows>(m + i * cols, cols, q, rank, p + i, p_stride);
  for (; i < rows; ++i) project_rows<1>(m + i * cols, cols, q, rank, p + i, p_stride);
}

// sum[k][j] += the sum over R rows of m[row][j] * p[k][row].
template <std::size_t R, std::size_t K>
void back_tile(const float* FLUVIAL_RESTRICT m, std::size_t rows, std::size_t cols, std::size_t count,
               const float* FLUVIAL_RESTRICT p, float* FLUVIAL_RESTRICT sum) {
  float factor[R][K];
  for (std::size_t r = 0; r < R; ++r) {
    for (std::size_t k = 0; k < K; ++k) factor[r][k] = p[k * rows + r];
  }
  std::size_t j = 0;
  for (; j + kLowrankLanes <= count; j += kLowrankLanes) {
    Lanes group[K] = {};
    for (std::size_t r = 0; r < R; ++r) {
      __builtin_prefetch(m + r * cols + j + kAhead);
      Lanes x;
      load(m + r * cols + j, x);
      for (std::size_t k = 0; k < K; ++k) group[k] = r == 0 ? x * factor[0][k] : group[k] + x * factor[r][k];
    }
    for (std::size_t k = 0; k < K; ++k) {
      Lanes before;
      load(sum + k * kBackCols + j, before);
      store(before + group[k], sum + k * kBackCols + j);
    }
  }
  for (; j < count; ++j) {
    for (std::size_t k = 0; k < K; ++k) {
      float group = m[j] * factor[0][k];
      for (std::size_t r = 1; r < R; ++r) group = group + m[r * cols + j] * factor[r][k];
      sum[k * kBackCols + j] = sum[k * kBackCols + j] + group;
    }
  }
}

// One block of rows and at most kBackCols columns, K columns of P; `rows` is the length of a column of P.
template <std::size_t K>
void back_block(const float* m, std::size_t block_rows, std::size_t rows, std::size_t cols, std::size_t count,
                const float* p, double* sums) {
  alignas(64) float block[K * kBackCols];
  for (std::size_t i = 0; i < K * kBackCols; ++i) block[i] = 0.0F;
  std::size_t i = 0;
  for (; i + kLowrankGroup <= block_rows; i += kLowrankGroup) {
    back_tile<kLowrankGroup, K>(m + i * cols, rows, cols, count, p + i, block);
  }
  for (; i < block_rows; ++i) back_tile<1, K>(m + i * cols, rows, cols, count, p + i, block);
  for (std::size_t k = 0; k < K; ++k) {
    for (std::size_t j = 0; j < count; ++j) sums[k * cols + j] += static_cast<double>(block[k * kBackCols + j]);
  }
}

void back_ranks(const float* m, std::size_t block_rows, std::size_t rows, std::size_t cols, std::size_t count,
                const float* p, std::size_t rank, double* sums) {
  std::size_t k = 0;
  for (; k + kTileRank <= rank; k += kTileRank) {
    back_block<kTileRank>(m, block_rows, rows, cols, count, p + k * rows, sums + k * cols);
  }
  if (k + 2 <= rank) {
    back_block<2>(m, block_rows, rows, cols, count, p + k * rows, sums + k * cols);
    k += 2;
  }
  if (k < rank) back_block<1>(m, block_rows, rows, cols, count, p + k * rows, sums + k * cols);
}

void project_back(const float* m, std::size_t rows, std::size_t cols, std::size_t first, std::size_t count,
                  const float* p, std::size_t rank, double* sums, float* q) {
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t j = first; j < first + count; ++j) sums[k * cols + j] = 0;
  }
  for (std::size_t i = 0; i < rows; i += kLowrankRows) {
    const std::size_t block_rows = rows - i < kLowrankRows ? rows - i : kLowrankRows;
    for (std::size_t j = first; j < first + count; j += kBackCols) {
      const std::size_t block_cols = first + count - j < kBackCols ? first + count - j : kBackCols;
      back_ranks(m + i * cols + j, block_rows, rows, cols, block_cols, p + i, rank, sums + j);
    }
  }
  for (std::size_t k = 0; k < rank; ++k) {
    for (std::size_t j = first; j < first + count; ++j) q[k * cols + j] = static_cast<float>(sums[k * cols + j]);
  }
}

// `count` columns of R rows; K columns of the factors, or `rank` when K is 0.
template <std::size_t R, std::size_t K, bool Leave>
void outer_tile(const float* m, std::size_t rows, std::size_t cols, std::size_t count, const float* FLUVIAL_RESTRICT p,
                const float* FLUVIAL_RESTRICT q, std::size_t rank, float* out) {
  const std::size_t ranks = K == 0 ? rank : K;
  float factor[K == 0 ? kLowrankRankMax : K][R];
  for (std::size_t k = 0; k < ranks; ++k) {
    for (std::size_t r = 0; r < R; ++r) factor[k][r] = p[k * rows + r];
  }
  std::size_t j = 0;
  for (; j + kLowrankLanes <= count; j += kLowrankLanes) {
    Lanes column;
    Lanes sum[R];
    load(q + j, column);
    for (std::size_t r = 0; r < R; ++r) sum[r] = column * factor[0][r];
    for (std::size_t k = 1; k < ranks; ++k) {
      load(q + k * cols + j, column);
      for (std::size_t r = 0; r < R; ++r) sum[r] = sum[r] + column * factor[k][r];
    }
    for (std::size_t r = 0; r < R; ++r) {
      if constexpr (Leave) {
        __builtin_prefetch(m + r * cols + j + kAhead);
        Lanes x;
        load(m + r * cols + j, x);
        store(x - sum[r], out + r * cols + j);
      } else {
        store(sum[r] + 0.0F, out + r * cols + j);
      }
    }
  }
  for (; j < count; ++j) {
    for (std::size_t r = 0; r < R; ++r) {
      float sum = q[j] * factor[0][r];
      for (std::size_t k = 1; k < ranks; ++k) sum = sum + q[k * cols + j] * factor[k][r];
      out[r * cols + j] = Leave ? m[r * cols + j] - sum : sum + 0.0F;
    }
  }
}

template <std::size_t R, bool Leave>
void outer_rows(const float* m, std::size_t rows, std::size_t cols, std::size_t count, const float* p, const float* q,
                std::size_t rank, float* out) {
  switch (rank) {
    case 1: return outer_tile<R, 1, Leave>(m, rows, cols, count, p, q, rank, out);
    case 2: return outer_tile<R, 2, Leave>(m, rows, cols, count, p, q, rank, out);
    case 4: return outer_tile<R, 4, Leave>(m, rows, cols, count, p, q, rank, out);
    default: return outer_tile<R, 0, Leave>(m, rows, cols, count, p, q, rank, out);
  }
}

// A part of a row, whole rows, a part of a row.
template <bool Leave>
void outer(const float* m, std::size_t first, std::size_t count, std::size_t rows, std::size_t cols, const float* p,
           const float* q, std::size_t rank, float* out) {
  std::size_t done = 0;
  const auto source = [&] { return Leave ? m + done : m; };
  while (done < count) {
    const std::size_t row = (first + done) / cols;
    const std::size_t col = (first + done) % cols;
    if (col == 0 && count - done >= kLeaveRows * cols) {
      outer_rows<kLeaveRows, Leave>(source(), rows, cols, cols, p + row, q, rank, out + done);
      done += kLeaveRows * cols;
    } else {
      const std::size_t part = cols - col < count - done ? cols - col : count - done;
      outer_rows<1, Leave>(source(), rows, cols, part, p + row, q + col, rank, out + done);
      done += part;
    }
  }
}

void leave(const float* m, std::size_t first, std::size_t count, std::size_t rows, std::size_t cols, const float* p,
           const float* q, std::size_t rank, float* out) {
  outer<true>(m, first, count, rows, cols, p, q, rank, out);
}

void expand(std::size_t first, std::size_t count, std::size_t rows, std::size_t cols, const float* p, const float* q,
            std::size_t rank, float* out) {
  outer<false>(nullptr, first, count, rows, cols, p, q, rank, out);
}

double dot(const double* a, const double* b, std::size_t n) {
  double lanes[kLowrankLanes] = {};
  std::size_t i = 0;
  for (; i + kLowrankLanes <= n; i += kLowrankLanes) {
    for (std::size_t lane = 0; lane < kLowrankLanes; ++lane) lanes[lane] += a[i + lane] * b[i + lane];
  }
  for (std::size_t lane = 0; i < n; ++i, ++lane) lanes[lane] += a[i] * b[i];
  return sum_of(lanes);
}

void subtract_scaled(double factor, const double* FLUVIAL_RESTRICT x, std::size_t n, double* FLUVIAL_RESTRICT y) {
  for (std::size_t i = 0; i < n; ++i) y[i] = y[i] - factor * x[i];
}

const LowrankLoops& lowrank_loops_table() {
  static constexpr LowrankLoops kTable = {project, project_back, leave, expand, dot, subtract_scaled};
  return kTable;
}

}  // namespace
}  // namespace fluvial::kernels::cpu::FLUVIAL_TARGET

#undef FLUVIAL_RESTRICT
