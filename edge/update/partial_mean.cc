#include "edge/update/partial_mean.h"

#include <algorithm>
#include <utility>

#include "edge/update/gpu_route.h"
#include "edge/update/part_values.h"

namespace fluvial::edge {

PartialMean::PartialMean(kernels::ChunkLayout layout, Algorithm reduction, SiteGpus* gpus)
    : layout_(layout), reduction_(reduction), gpus_(gpus), done_(layout.chunk_count(), false) {}
PartialMean::~PartialMean() = default;

Status PartialMean::reduce(const round::Schema& schema, const std::vector<PartView>& parts,
                           const round::ByteRanges& ready, Parallel& parallel) {
  FLUVIAL_CHECK(schema.all_averaged() && parts.size() > 1, "nothing to reduce early");
  std::vector<std::size_t> chunks;
  for (std::size_t i = 0; i < done_.size(); ++i) {
    const round::ByteRange bytes{layout_.first_value(i) * sizeof(float), layout_.size(i) * sizeof(float)};
    if (!done_[i] && ready.covers(bytes)) chunks.push_back(i);
  }
  if (gpus_ != nullptr && !gpu_ && mean_.empty() && lie_on_gpus(schema, parts)) {
    FLUVIAL_ASSIGN(gpu_, gpu_update_of(*gpus_, parts, layout_));
    on_gpu_ = gpu_ != nullptr;
  }
  if (gpu_) {
    FLUVIAL_TRY(gpu_->reduce(chunks));
  } else {
    if (mean_.empty()) mean_ = Buffer(static_cast<std::size_t>(layout_.value_count) * sizeof(float));
    FLUVIAL_ASSIGN(const std::vector<PartValues> values, values_of(schema, parts));
    const std::span<float> mean(reinterpret_cast<float*>(mean_.data()), mean_.size() / sizeof(float));  // NOLINT
    FLUVIAL_TRY(parallel.for_each(chunks.size(), [&](std::size_t i) {
      return mean_of_chunk(values, parts, layout_, chunks[i], reduction_, layout_.of(mean, chunks[i]));
    }));
  }
  for (const std::size_t chunk : chunks) done_[chunk] = true;
  return {};
}

std::size_t PartialMean::chunks_done() const { return static_cast<std::size_t>(std::ranges::count(done_, true)); }

std::unique_ptr<GpuUpdate> PartialMean::take_gpu() { return std::move(gpu_); }

}  // namespace fluvial::edge
