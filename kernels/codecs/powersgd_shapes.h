// Which parts of a vector PowerSGD cuts into factors, and the places of the factors in what travels. Internal.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "core/base/result.h"
#include "kernels/chunks.h"

namespace fluvial::kernels::powersgd {

// A matrix n x m of rank r is cut into factors when n * m > kRateMin * r * (n + m), with r at most min(n, m); otherwise
// they would save too little. (As PyTorch's and the authors' own implementations do. It follows that a rank beyond
// min(n, m) is never used: such a matrix is not cut.)
inline constexpr std::uint64_t kRateMin = 2;

// kInvalidArgument unless every tensor lies within the vector, none overlaps another, and they stand in order.
Status check_tensors(const VectorSchema& schema);

// A matrix that is cut, or a run of values that travels as it is.
struct Segment {
  std::uint64_t first = 0;  // of the vector
  std::uint64_t count = 0;
  std::size_t rows = 0, cols = 0;
  std::size_t rank = 0;           // 0: values as they are
  std::uint64_t p_first = 0;      // rank * rows values of pass 0
  std::uint64_t q_first = 0;      // rank * cols values of pass 1 and of the warm start
  std::uint64_t plain_first = 0;  // among the values as they are, which follow the last Q in pass 1
};

// All segments of a schema, in order; together they are the vector. Tensors that check_tensors() refuses are
// ignored.
class Segments {
 public:
  Segments(const VectorSchema& schema, std::uint32_t rank);
  bool next(Segment* segment);  // false at the end

 private:
  bool take(std::uint64_t count, std::size_t rows, std::size_t cols, std::size_t rank, Segment* segment);

  VectorSchema schema_;
  std::uint32_t rank_;
  std::size_t tensor_ = 0;
  Segment ahead_;  // where the next one begins
};

// Calls `matrix` and `plain` for the part of each segment in the chunk: where it begins in the segment and in the
// chunk, and how many values it has.
template <typename Matrix, typename Plain>
void over_chunk(const VectorSchema& schema, std::uint32_t rank, std::size_t chunk_index, Matrix&& matrix,
                Plain&& plain) {
  const std::uint64_t begin = schema.layout.first_value(chunk_index);
  const std::uint64_t end = begin + schema.layout.size(chunk_index);
  Segments segments(schema, rank);
  for (Segment segment; segments.next(&segment) && segment.first < end;) {
    const std::uint64_t from = std::max(begin, segment.first);
    const std::uint64_t to = std::min(end, segment.first + segment.count);
    if (from >= to) continue;
    const auto in_segment = static_cast<std::size_t>(from - segment.first);
    const auto in_chunk = static_cast<std::size_t>(from - begin);
    const auto count = static_cast<std::size_t>(to - from);
    segment.rank != 0 ? matrix(segment, in_segment, in_chunk, count) : plain(segment, in_segment, in_chunk, count);
  }
}

struct Totals {
  std::uint64_t p = 0, q = 0, plain = 0;
  std::uint64_t p_most = 0;     // of one matrix
  std::uint64_t p_columns = 0;  // columns of P and of Q
  std::size_t parts[2] = {};
};
Totals totals_of(const VectorSchema& schema, std::uint32_t rank);

// The work of one prepare_part(): rows of a matrix (pass 0), its columns (pass 1), or values as they are.
struct Part {
  Segment segment;
  std::size_t first = 0, count = 0;
};
Part part_of(const VectorSchema& schema, std::uint32_t rank, std::uint32_t pass,
             std::size_t part);  // below parts[pass]

// A fingerprint of the tensors, in order, with their dimensions: identifies the matrices that a state belongs to.
std::uint64_t fingerprint(const VectorSchema& schema, std::uint32_t rank);

}  // namespace fluvial::kernels::powersgd
