// One result's flat vector, wherever its bytes are: in a worker's memory if the whole model is averaged, otherwise cut
// out of it; or on a GPU. The memory may belong to a worker that goes on writing. So each value is read only once, and
// nothing relies on reading it again.
#pragma once

#include <span>
#include <vector>

#include "core/round/schema.h"
#include "edge/update/job.h"

namespace fluvial::edge {

class PartValues {
 public:
  static Result<PartValues> of(const round::Schema& schema, const PartView& part);

  // The values from `first` on: in place if they are contiguous on the host, else gathered in `scratch`. Any
  // thread.
  Result<std::span<const float>> read(std::uint64_t first, std::size_t count, std::vector<float>& scratch) const;
  const std::vector<std::int64_t>& integers() const { return integers_; }

 private:
  struct Piece {
    std::uint64_t first_value = 0;
    std::size_t count = 0;
    const float* values = nullptr;                 // on the host
    std::shared_ptr<const WorkerVector> gpu = {};  // or in this vector, from first_value on
  };
  void cut(const round::Schema& schema, ByteSpan model);
  Status add_shards(const round::Schema& schema, const std::vector<ShardView>& shards);

  Buffer cut_;
  std::vector<Piece> pieces_;  // in order
  std::vector<std::int64_t> integers_;
};

Result<std::vector<PartValues>> values_of(const round::Schema& schema, const std::vector<PartView>& parts);

// The greatest of the workers' integer tensors, element by element, as the coordinator joins those of the sites.
std::vector<std::int64_t> joined_integers(const std::vector<PartValues>& parts);

// Chunk `index` of the weighted mean of several results, into `out`.
Status mean_of_chunk(const std::vector<PartValues>& values, const std::vector<PartView>& parts,
                     const kernels::ChunkLayout& layout, std::size_t index, Algorithm reduction, std::span<float> out);

}  // namespace fluvial::edge
