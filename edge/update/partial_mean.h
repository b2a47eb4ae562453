// The weighted mean of a task's results while they are still being computed: a chunk is reduced as soon as every worker
// has all of it in place. The same arithmetic on the same values as make_update() without it, so the same bits.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/round/byte_ranges.h"
#include "edge/update/job.h"

namespace fluvial::edge {

// One thread at a time. Keeps no view of the parts.
class PartialMean {
 public:
  PartialMean(kernels::ChunkLayout layout, Algorithm reduction);

  // Reduces the chunks within `ready` that were not reduced before. The schema is all averaged, and the parts are the
  // same in each call, of one kind, and at least two; of a shard only what is in `ready` is looked at.
  Status reduce(const round::Schema& schema, const std::vector<UpdatePart>& parts, const round::ByteRanges& ready,
                Parallel& parallel);

  bool has(std::size_t chunk_index) const { return done_[chunk_index]; }
  std::size_t chunks_done() const;
  Buffer take() { return std::move(mean_); }  // of those chunks the mean; the object is spent but for has()

 private:
  kernels::ChunkLayout layout_;
  Algorithm reduction_;
  Buffer mean_;
  std::vector<bool> done_;
};

}  // namespace fluvial::edge
