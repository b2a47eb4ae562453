// PowerSGD's factors: device_lowrank.h.
#include <algorithm>

#include "kernels/cuda/backend.h"
#include "kernels/cuda/packs.h"
#include "kernels/cuda/squares.h"
#include "kernels/cuda/warp.h"
#include "kernels/ops/lowrank.h"

namespace fluvial::kernels::FLUVIAL_GPU {
namespace {

constexpr unsigned kThreads = 256;
constexpr unsigned kBackThreads = 64;  // few threads to a block: columns are fewer than values
constexpr std::uint32_t kRankTile = 4;
constexpr unsigned kLanes = ops::kLowrankLanes;
static_assert(kLanes == kSquareLanes && 2 * kLanes == kWarp);

struct Shape {
  std::uint64_t rows, cols;
  std::uint32_t rank;
};
Shape shape_of(const LowrankShape& shape) { return {shape.rows, shape.cols, static_cast<std::uint32_t>(shape.rank)}; }

// Half a warp takes a row: a thread is a lane.
__global__ void __launch_bounds__(kThreads) project_rows(const float* m, Shape shape, const float* q, float* p) {
  const unsigned lane = lane_id() % kLanes;
  for (std::uint64_t pair = thread_in_grid() / kWarp; 2 * pair < shape.rows; pair += threads_in_grid() / kWarp) {
    const std::uint64_t row = 2 * pair + lane_id() / kLanes;
    const bool is_row = row < shape.rows;
    const float* const x = m + (is_row ? row : 2 * pair) * shape.cols;
    for (std::uint32_t k = 0; k < shape.rank; k += kRankTile) {
      double sums[kRankTile] = {};
      for (std::uint64_t first = 0; first < shape.cols; first += ops::kLowrankCols) {
        const std::uint64_t left = shape.cols - first;
        const std::uint64_t end = first + (left < ops::kLowrankCols ? left : ops::kLowrankCols);
        float lanes[kRankTile] = {};
        for (std::uint64_t j = first + lane; j < end; j += kLanes) {
          const float value = x[j];
          FLUVIAL_UNROLL
          for (std::uint32_t t = 0; t < kRankTile; ++t) {
            if (k + t < shape.rank) lanes[t] = lanes[t] + value * q[(k + t) * shape.cols + j];
          }
        }
        FLUVIAL_UNROLL
        for (std::uint32_t t = 0; t < kRankTile; ++t) {
          double sum = static_cast<double>(lanes[t]);
          for (int step = kLanes / 2; step > 0; step /= 2) sum += __shfl_xor_sync(kFullMask, sum, step);
          sums[t] += sum;
        }
      }
      for (std::uint32_t t = 0; t < kRankTile; ++t) {
        if (is_row && lane == 0 && k + t < shape.rank) p[(k + t) * shape.rows + row] = static_cast<float>(sums[t]);
      }
    }
  }
}

// The products of `count` rows with up to kRankTile columns of P, added in order.
__device__ inline void add_rows(const float* m, std::uint64_t cols, const float* p, const Shape& shape,
                                std::uint32_t ranks, std::uint32_t count, float (&block)[kRankTile]) {
  float group[kRankTile] = {};
  for (std::uint32_t r = 0; r < count; ++r) {
    const float value = m[r * cols];
    FLUVIAL_UNROLL
    for (std::uint32_t t = 0; t < kRankTile; ++t) {
      if (t >= ranks) continue;
      const float product = value * p[t * shape.rows + r];
      group[t] = r == 0 ? product : group[t] + product;
    }
  }
  for (std::uint32_t t = 0; t < kRankTile; ++t) block[t] = block[t] + group[t];
}

// A thread takes a column.
__global__ void __launch_bounds__(kBackThreads) project_columns(const float* m, Shape shape, const float* p, float* q) {
  for (std::uint64_t col = thread_in_grid(); col < shape.cols; col += threads_in_grid()) {
    for (std::uint32_t k = 0; k < shape.rank; k += kRankTile) {
      const std::uint32_t ranks = shape.rank - k < kRankTile ? shape.rank - k : kRankTile;
      const float* const factors = p + k * shape.rows;
      double sums[kRankTile] = {};
      for (std::uint64_t first = 0; first < shape.rows; first += ops::kLowrankRows) {
        const std::uint64_t left = shape.rows - first;
        const std::uint64_t end = first + (left < ops::kLowrankRows ? left : ops::kLowrankRows);
        float block[kRankTile] = {};
        std::uint64_t i = first;
        for (; i + ops::kLowrankGroup <= end; i += ops::kLowrankGroup) {
          add_rows(m + i * shape.cols + col, shape.cols, factors + i, shape, ranks, ops::kLowrankGroup, block);
        }
        for (; i < end; ++i) add_rows(m + i * shape.cols + col, shape.cols, factors + i, shape, ranks, 1, block);
        for (std::uint32_t t = 0; t < kRankTile; ++t) sums[t] += static_cast<double>(block[t]);
      }
      for (std::uint32_t t = 0; t < ranks; ++t) q[(k + t) * shape.cols + col] = static_cast<float>(sums[t]);
    }
  }
}

struct Products {
  const double* a;
  const double* b;
  __device__ double at(std::uint64_t index) const { return a[index] * b[index]; }
};
__device__ inline double dot(const double* a, const double* b, std::uint64_t n) {
  return total_of_lanes(add_in_lanes(0, n, Products{a, b}));
}

// A batch of matrices for one kernel: as many as fit among its parameters.
template <typename Item>
struct Batch {
  static constexpr std::uint32_t kMost = 64;
  Item of[kMost];
  std::uint32_t count;
};

struct Basis {
  Shape shape;
  const float* mean;
  double* scratch;
  float* p;

  __device__ double* unit(std::uint32_t column) const { return scratch + column * shape.rows; }
  __device__ double* norm_before(std::uint32_t column) const { return scratch + shape.rank * shape.rows + column; }
};

// Modified Gram-Schmidt, step k, by one block for each column from k on: each removes its part along column k - 1,
// which became a unit in the step before, and column k becomes a unit. So every column meets the units before it in
// order.
__global__ void __launch_bounds__(kSquareThreads) orthonormal_step(Batch<Basis> batch, std::uint32_t k) {
  const Basis& at = batch.of[blockIdx.x % batch.count];
  const std::uint32_t l = k + blockIdx.x / batch.count;
  if (l >= at.shape.rank) return;
  const std::uint64_t rows = at.shape.rows;
  double* const column = at.unit(l);
  double before = 0;
  if (k == 0) {
    for (std::uint64_t i = threadIdx.x; i < rows; i += kSquareThreads) {
      column[i] = static_cast<double>(at.mean[l * rows + i]);
    }
    __syncthreads();
    before = ops::square_root(dot(column, column, rows));
    if (threadIdx.x == 0) *at.norm_before(l) = before;
  } else {
    before = *at.norm_before(l);
    const double* const unit = at.unit(k - 1);
    const double factor = dot(unit, column, rows);
    for (std::uint64_t i = threadIdx.x; i < rows; i += kSquareThreads) column[i] = column[i] - factor * unit[i];
    __syncthreads();
  }
  if (l != k) return;
  const double norm = ops::square_root(dot(column, column, rows));
  const bool dependent = !(norm > ops::kDependent * before);
  for (std::uint64_t i = threadIdx.x; i < rows; i += kSquareThreads) {
    column[i] = dependent ? 0.0 : column[i] / norm;
    at.p[k * rows + i] = static_cast<float>(column[i]);
  }
}

template <bool kLeave>
struct OuterOp {
  const float* m;  // when leaving
  std::uint64_t first;
  Shape shape;
  const float* p;
  const float* q;
  float* out;

  template <int kCount>
  __device__ void run(At<kCount> at) const {
    Pack<float, kCount> values{};
    if (kLeave) values = at.load(m);
    for (std::uint32_t i = 0; i < kCount; ++i) {
      const std::uint64_t row = (first + at.index + i) / shape.cols;
      const std::uint64_t col = (first + at.index + i) % shape.cols;
      float sum = q[col] * p[row];
      for (std::uint32_t k = 1; k < shape.rank; ++k) sum = sum + q[k * shape.cols + col] * p[k * shape.rows + row];
      values.v[i] = kLeave ? values.v[i] - sum : sum + 0.0F;
    }
    at.store(out, values);
  }
};

struct HeaderWords {
  std::uint64_t words[4];
};
HeaderWords words_of(const LowrankHeader& header) { return {{header[0], header[1], header[2], header[3]}}; }

__global__ void __launch_bounds__(kWarp)
    judge_state(HeaderWords expected, const std::uint64_t* header, StateVerdict* verdict, ChunkOutcome* outcome) {
  if (threadIdx.x != 0) return;
  const bool is_new = (header[0] | header[1] | header[2] | header[3]) == 0;
  const bool is_known =
      header[0] == expected.words[0] && header[1] == expected.words[1] && header[3] == expected.words[3];
  *verdict = is_new ? StateVerdict::kNew : is_known ? StateVerdict::kKnown : StateVerdict::kOther;
  if (!is_new && !is_known) outcome->malformed = ChunkOutcome::kMalformed;
}

__global__ void __launch_bounds__(kWarp)
    put_state_header(HeaderWords words, std::uint64_t* header, const StateVerdict* verdict, StateVerdict least) {
  if (*verdict >= least && threadIdx.x < 4) header[threadIdx.x] = words.words[threadIdx.x];
}

struct Columns {
  Shape shape;
  const float* mean;
  std::uint64_t first_value;
  float* q;
};

// A block takes a column.
__global__ void __launch_bounds__(kSquareThreads)
    put_columns(Batch<Columns> batch, std::uint64_t run, const StateVerdict* verdict, StateVerdict least) {
  __shared__ std::uint32_t has_values;
  const Columns& at = batch.of[blockIdx.x % batch.count];
  const std::uint32_t k = blockIdx.x / batch.count;
  if (*verdict < least || k >= at.shape.rank) return;
  const std::uint64_t cols = at.shape.cols;
  float* const column = at.q + k * cols;
  if (threadIdx.x == 0) has_values = 0;
  __syncthreads();
  for (std::uint64_t i = threadIdx.x; i < cols; i += kSquareThreads) {
    column[i] = at.mean == nullptr ? 0.0F : at.mean[k * cols + i];
    if (ops::magnitude_bits(column[i]) != 0) has_values = 1;
  }
  __syncthreads();
  if (has_values == 0) {
    for (std::uint64_t i = threadIdx.x; i < cols; i += kSquareThreads) {
      column[i] = ops::drawn_factor(run, at.first_value + k * cols + i);
    }
  }
  __syncthreads();
  const double norm_squared = total_of_lanes(add_in_lanes(0, cols, SquareOf<VectorAt>{{column}}));
  const double factor = ops::unit_scale(norm_squared);
  for (std::uint64_t i = threadIdx.x; i < cols; i += kSquareThreads) {
    column[i] = static_cast<float>(static_cast<double>(column[i]) * factor);
  }
}

// Calls run(batch, greatest rank in it) for all, some at a time.
template <typename Item, typename From, typename Convert, typename Run>
Status in_batches(std::span<const From> all, Convert convert, Run run) {
  while (!all.empty()) {
    Batch<Item> batch{};
    std::uint32_t rank = 0;
    for (; batch.count < Batch<Item>::kMost && batch.count < all.size(); ++batch.count) {
      batch.of[batch.count] = convert(all[batch.count]);
      rank = std::max(rank, batch.of[batch.count].shape.rank);
    }
    FLUVIAL_TRY(run(batch, rank));
    all = all.subspan(batch.count);
  }
  return {};
}

class GpuLowrankOps final : public DeviceLowrankOps {
 public:
  Status begin_state(const LowrankHeader& header, DeviceSpan<const std::byte> state, StateVerdict* verdict,
                     ChunkOutcome* outcome, Stream& stream) override {
    return launch(judge_state, 1U, kWarp, stream, words_of(header),
                  reinterpret_cast<const std::uint64_t*>(state.data()), verdict, outcome);
  }
  Status write_columns(std::span<const LowrankColumns> matrices, std::uint64_t run, const StateVerdict* verdict,
                       StateVerdict least, Stream& stream) override {
    const auto convert = [](const LowrankColumns& from) {
      return Columns{shape_of(from.shape), from.mean, from.first_value, from.q};
    };
    return in_batches<Columns>(matrices, convert, [&](const Batch<Columns>& batch, std::uint32_t rank) {
      return launch(put_columns, batch.count * rank, kSquareThreads, stream, batch, run, verdict, least);
    });
  }
  Status write_header(const LowrankHeader& header, DeviceSpan<std::byte> state, const StateVerdict* verdict,
                      StateVerdict least, Stream& stream) override {
    return launch(put_state_header, 1U, kWarp, stream, words_of(header), reinterpret_cast<std::uint64_t*>(state.data()),
                  verdict, least);
  }
  Status project(const float* m, const LowrankShape& shape, const float* q, float* p, Stream& stream) override {
    constexpr std::size_t kRows = 2 * kThreads / kWarp;
    return launch(project_rows, blocks_for((shape.rows + kRows - 1) / kRows, stream), kThreads, stream, m,
                  shape_of(shape), q, p);
  }
  Status orthonormalise(std::span<const LowrankBasis> matrices, Stream& stream) override {
    const auto convert = [](const LowrankBasis& from) {
      return Basis{shape_of(from.shape), from.mean, from.scratch, from.p};
    };
    return in_batches<Basis>(matrices, convert, [&](const Batch<Basis>& batch, std::uint32_t rank) -> Status {
      for (std::uint32_t k = 0; k < rank; ++k) {
        FLUVIAL_TRY(launch(orthonormal_step, batch.count * (rank - k), kSquareThreads, stream, batch, k));
      }
      return {};
    });
  }
  Status project_back(const float* m, const LowrankShape& shape, const float* p, float* q, Stream& stream) override {
    return launch(project_columns, blocks_for((shape.cols + kBackThreads - 1) / kBackThreads, stream), kBackThreads,
                  stream, m, shape_of(shape), p, q);
  }
  Status leave(const float* m, std::size_t first, std::size_t count, const LowrankShape& shape, const float* p,
               const float* q, float* out, Stream& stream) override {
    return launch_each(OuterOp<true>{m, first, shape_of(shape), p, q, out}, count, fits_four(m) && fits_four(out),
                       stream);
  }
  Status expand(std::size_t first, std::size_t count, const LowrankShape& shape, const float* p, const float* q,
                float* out, Stream& stream) override {
    return launch_each(OuterOp<false>{nullptr, first, shape_of(shape), p, q, out}, count, fits_four(out), stream);
  }
};

}  // namespace

DeviceLowrankOps& lowrank_ops() {
  static GpuLowrankOps ops;
  return ops;
}

}  // namespace fluvial::kernels::FLUVIAL_GPU
