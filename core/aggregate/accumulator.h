// The sum of contributions, exact: one int64 a value (kernels/fixed.h), and the integer tensors beside it.
//
// Eight bytes a value, taken once and reused from round to round. Calls for different chunks may run at the same time;
// calls for one chunk, and those for integers, take turns. The sum is the same for any order and any grouping of the
// calls. Who may be summed is decided elsewhere: an update only after all of its chunks were screened, a partial only
// if its contributors are disjoint from those already here.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/result.h"
#include "kernels/codec.h"
#include "kernels/fixed.h"

namespace fluvial::aggregate {

class Accumulator {
 public:
  // Integer tensors (counters) travel unaveraged, as integer_count int64 values.
  Accumulator(kernels::ChunkLayout layout, std::size_t integer_count, int scale_bits);

  const kernels::ChunkLayout& layout() const { return layout_; }
  int scale_bits() const { return scale_bits_; }

  // Adds a screened, encoded chunk. kInvalidArgument: no such chunk, or a weight outside 1 to kWeightEnd - 1.
  // kDataLoss: bytes that do not decode. The sum is unchanged after an error. `weight` is in units of 2^-down_bits.
  Status add_chunk(const kernels::Codec& codec, std::size_t chunk_index, ByteSpan bytes, std::uint32_t weight,
                   int down_bits = 0);

  // Adds a packed chunk of another accumulator of the same layout and scale. Errors as above.
  Status merge_chunk(std::size_t chunk_index, ByteSpan packed);

  // The chunk as it travels between nodes: as narrow as it fits, or sparse.
  Buffer pack_chunk(std::size_t chunk_index) const;

  // mean = sum * 2^-scale / total_weight (kernels/fixed.h says how it rounds), of the values from first_value on; the
  // caller may cut anywhere. `total_weight` is in units of 2^-weight_bits. kInvalidArgument: no such values or weight.
  Status mean(std::uint64_t first_value, std::uint64_t total_weight, std::span<float> out, int weight_bits = 0) const;

  // The rule for integers: the element-wise maximum over the contributors. Associative, commutative and idempotent, so
  // order and tree shape do not matter. kInvalidArgument when the count differs.
  Status add_integers(std::span<const std::int64_t> integers);
  // Before the first contribution every element is the smallest int64, which changes nothing when it is merged.
  std::span<const std::int64_t> integers() const { return integers_; }

  // All sums, for digests and audits. Not while a chunk is being changed.
  std::span<const std::int64_t> sum() const { return sum_; }

  // Back to zero contributions, in the same memory, at another round's scale.
  void reset(int scale_bits);

 private:
  Status check_chunk(std::size_t chunk_index) const;
  std::span<std::int64_t> sum_of(std::size_t chunk_index) { return layout_.of(std::span(sum_), chunk_index); }

  kernels::ChunkLayout layout_;
  int scale_bits_;
  std::vector<std::int64_t> sum_;
  std::vector<std::int64_t> integers_;
};

}  // namespace fluvial::aggregate
