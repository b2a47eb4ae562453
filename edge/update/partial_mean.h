// The weighted mean of a task's results while they are still being computed: a chunk is reduced as soon as every worker
// has all of it in place. The same arithmetic on the same values as make_update() without it, so the same bits. If the
// results are on GPUs, so is the mean.
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <vector>

#include "core/base/parallel.h"
#include "core/round/byte_ranges.h"
#include "edge/update/job.h"

namespace fluvial::edge {

class GpuUpdate;

// One thread at a time. Keeps no view of the parts, but keeps vectors on GPUs open.
class PartialMean {
 public:
  PartialMean(kernels::ChunkLayout layout, Algorithm reduction, SiteGpus* gpus = nullptr);
  ~PartialMean();

  // Reduces the chunks within `ready` that were not reduced before. All tensors of the schema are averaged. The parts
  // are the same in each call, of one kind, and at least two; a shard is read only within `ready`.
  Status reduce(const round::Schema& schema, const std::vector<PartView>& parts, const round::ByteRanges& ready,
                Parallel& parallel);

  std::size_t chunks_done() const;
  // The mean of those chunks if it is on a GPU, else null. Then the object is spent.
  std::unique_ptr<GpuUpdate> take_gpu();
  // The mean if it is on the host, else empty. Then the object is spent but for has().
  Buffer take() { return std::move(mean_); }
  bool has(std::size_t chunk_index) const { return !on_gpu_ && done_[chunk_index]; }

 private:
  kernels::ChunkLayout layout_;
  Algorithm reduction_;
  SiteGpus* gpus_;
  bool on_gpu_ = false;
  std::unique_ptr<GpuUpdate> gpu_;
  Buffer mean_;
  std::vector<bool> done_;
};

}  // namespace fluvial::edge
