// The sum of one node: verified arrivals go in whole, each with its probe; packed chunks for the parent come out.
#pragma once

#include <memory>
#include <optional>

#include "core/aggregate/accumulator.h"
#include "core/aggregate/probe.h"
#include "core/base/parallel.h"
#include "core/transfer/incoming.h"

namespace fluvial::transfer {

struct SumShape {
  kernels::ChunkLayout layout;
  std::size_t integer_count = 0;
  int scale_bits = 0;
  std::vector<std::uint32_t> factors = {};  // of old updates (core/round/lateness.h); empty: there are none
  bool operator==(const SumShape&) const = default;
};

// One call at a time; pack_chunk() may be called for different chunks at once. Blocking.
class NodeSum {
 public:
  // Empties the sum, in the same memory when the shape is the same. Must be called first.
  void reset(const SumShape& shape);

  // Adds the arrival and returns its contributors with the probes that the sum now holds for them. The arrival does not
  // change, so the sum can be made again without others. kUnavailable when it could not be added (a spilled chunk
  // cannot be read back, or the arrival was begun under other terms): part of it may be in the sum, so reset() before
  // anything else.
  Result<round::ContributorSet> add(const StagedArrival& arrival, Parallel& parallel);

  // Checks that the sum holds exactly these contributors' probes. kDataLoss names the first one that is wrong.
  Status check_probes(const round::ContributorSet& contributors) const;

  // A chunk as it travels to the parent. The same sum gives the same bytes.
  Buffer pack_chunk(std::size_t index) const { return accumulator_->pack_chunk(index); }
  std::span<const std::int64_t> integers() const { return accumulator_->integers(); }

  const aggregate::Accumulator& accumulator() const { return *accumulator_; }
  const SumShape& shape() const { return shape_; }

 private:
  Status add_values(const StagedArrival& arrival, Parallel& parallel);

  SumShape shape_;
  std::unique_ptr<aggregate::Accumulator> accumulator_;
  std::optional<aggregate::Probe> probe_;
};

}  // namespace fluvial::transfer
