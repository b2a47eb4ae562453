// One result's flat vector, wherever its bytes lie: in a worker's memory when all of it is averaged, cut out of it
// else. The memory may belong to a worker that goes on writing: each value is read from it once, so what was read is
// all that is ever known of it.
#pragma once

#include <span>
#include <vector>

#include "core/round/schema.h"
#include "edge/update/job.h"

namespace fluvial::edge {

class PartValues {
 public:
  static PartValues of(const round::Schema& schema, const UpdatePart& part);

  // The values from `first` on: where they lie if they lie together, else gathered in `scratch`. Any thread.
  std::span<const float> read(std::uint64_t first, std::size_t count, std::vector<float>& scratch) const;
  const std::vector<std::int64_t>& integers() const { return integers_; }

 private:
  struct Piece {
    std::uint64_t first_value = 0;
    std::span<const float> values;
  };
  Buffer cut_;
  std::vector<Piece> pieces_;  // in order
  std::vector<std::int64_t> integers_;
};

// Chunk `index` of the weighted mean of several results, into `out`.
Status mean_of_chunk(const std::vector<PartValues>& values, const std::vector<UpdatePart>& parts,
                     const kernels::ChunkLayout& layout, std::size_t index, Algorithm reduction, std::span<float> out);

}  // namespace fluvial::edge
