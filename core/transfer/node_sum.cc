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
  accumulator_.reset();  // free the old memory before allocating the new
  accumulator_ = std::make_unique<aggregate::Accumulator>(shape.layout, shape.integer_count, shape.scale_bits);
}

Status NodeSum::add_values(const StagedArrival& arrival, Parallel& parallel) {
  const UpdateArrival* update = arrival.update();
  const std::size_t chunk_count = shape_.layout.chunk_count();
  if (arrival.chunks->chunk_count() != chunk_count) {
    return Error{Code::kFailedPrecondition, "it came for a sum of another shape"};
  }
  std::optional<round::Share> share = round::Share{};
  if (update != nullptr) share = round::share_of(*arrival.what.contributors.find(update->site), shape_.factors);
  if (!share) return Error{Code::kFailedPrecondition, "it came for a sum that takes no update as old"};
  // An update's probe is one more piece: read from what its site sent, and added with the share of its chunks.
  FLUVIAL_TRY(parallel.for_each(chunk_count + (update != nullptr ? 1 : 0), [&](std::size_t i) -> Status {
    if (i == chunk_count) return probe_->add(update->site, update->probe, share->weight, share->down_bits);
    Buffer scratch;  // of a chunk that was spilled
    FLUVIAL_ASSIGN(const ByteSpan bytes, arrival.chunks->read(i, scratch));
    return update != nullptr ? accumulator_->add_chunk(*update->codec, i, bytes, share->weight, share->down_bits)
                             : accumulator_->merge_chunk(i, bytes);
  }));
  return accumulator_->add_integers(arrival.integers);
}

Result<round::ContributorSet> NodeSum::add(const StagedArrival& arrival, Parallel& parallel) {
  FLUVIAL_CHECK(accumulator_ != nullptr, "a sum without a shape");
  const round::ContributorSet& contributors = arrival.what.contributors;
  if (const Status added = contributors.empty() ? Status() : add_values(arrival, parallel); !added.ok()) {
    // The update was valid when it arrived. A fault now is this node's, and no reason to drop the update.
    return Error{Code::kUnavailable, "a verified update cannot be added: " + added.error().message};
  }
  round::ContributorSet with_probes;
  for (const auto& [site, entry] : contributors.entries()) {
    if (arrival.update() == nullptr) FLUVIAL_TRY(probe_->merge(site, entry.probe));
    round::Contribution counted_entry = entry;
    counted_entry.probe = probe_->sums().at(site);
    const Status fresh = with_probes.add(std::move(counted_entry));
    FLUVIAL_CHECK(fresh.ok(), "a contributor twice in one arrival");
  }
  return with_probes;
}

Status NodeSum::check_probes(const round::ContributorSet& contributors) const {
  FLUVIAL_TRY(round::check_probe(contributors, shape_.scale_bits, shape_.factors));
  for (const auto& [site, sum] : probe_->sums()) {
    const round::Contribution* entry = contributors.find(site);
    if (entry != nullptr && entry->probe == sum) continue;
    return Error{Code::kDataLoss, "the sum holds " + std::to_string(sum) + " of the probe of site " +
                                      std::to_string(site.value()) + ", and its contributors say otherwise"};
  }
  if (probe_->sums().size() == contributors.size()) return {};
  return Error{Code::kDataLoss, "a contributor whose update is not in the sum"};
}

}  // namespace fluvial::transfer
