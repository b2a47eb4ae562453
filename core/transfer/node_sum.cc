#include "core/transfer/node_sum.h"

#include <utility>

namespace fluvial::transfer {

void NodeSum::reset(const SumShape& shape) {
  const bool same =
      accumulator_ != nullptr && shape.layout == shape_.layout && shape.integer_count == shape_.integer_count;
  shape_ = shape;
  probe_.emplace(shape.scale_bits);
  if (same) {
    accumulator_->reset(shape.scale_bits);
    return;
  }
  accumulator_.reset();  // first give back, then take
  accumulator_ = std::make_unique<aggregate::Accumulator>(shape.layout, shape.integer_count, shape.scale_bits);
}

Result<round::ContributorSet> NodeSum::add(const StagedArrival& arrival, Parallel& parallel) {
  FLUVIAL_CHECK(accumulator_ != nullptr, "a sum without a shape");
  const bool is_update = arrival.site != SiteId(0);
  const round::ContributorSet& contributors = arrival.what.contributors;
  if (!contributors.empty()) {
    const auto weight = static_cast<std::uint32_t>(contributors.total_weight());
    FLUVIAL_TRY(parallel.for_each(shape_.layout.chunk_count(), [&](std::size_t i) -> Status {
      thread_local Buffer scratch;
      FLUVIAL_ASSIGN(const ByteSpan bytes, arrival.chunks->read(i, scratch));
      return is_update ? accumulator_->add_chunk(*arrival.codec, i, bytes, weight)
                       : accumulator_->merge_chunk(i, bytes);
    }));
    FLUVIAL_TRY(accumulator_->add_integers(arrival.integers));
  }
  round::ContributorSet with_probes;
  for (const auto& [site, entry] : contributors.entries()) {
    const Status counted =
        is_update ? probe_->add(site, static_cast<std::uint32_t>(entry.weight)) : probe_->merge(site, entry.probe);
    round::Contribution counted_entry = entry;
    counted_entry.probe = counted.ok() ? probe_->sums().at(site) : 0;
    const Status fresh = with_probes.add(std::move(counted_entry));
    FLUVIAL_CHECK(fresh.ok(), "a contributor twice in one arrival");
  }
  return with_probes;
}

}  // namespace fluvial::transfer
