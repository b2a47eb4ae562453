// The sum of one node and what waits to go into it: verified arrivals are held staged until the node's machine says
// take or drop. On the node's strand; the arithmetic runs on the pool, one operation after the other (lane.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <vector>

#include "core/aggregate/accumulator.h"
#include "core/aggregate/probe.h"
#include "core/round/gather.h"
#include "core/store/staging.h"
#include "core/tree/lane.h"
#include "core/tree/runtime.h"
#include "kernels/codec.h"

namespace fluvial::tree {

// A verified update or partial of a child, staged.
struct StagedArrival {
  NodeId child;
  SiteId site;                 // of an update; 0 for a partial
  std::uint64_t sequence = 0;  // of a partial
  RunId run;
  RoundId round;
  round::Arrival what;
  std::optional<store::StagedUpdate> chunks;  // none for a partial without contributors
  std::vector<std::int64_t> integers;
  std::shared_ptr<const kernels::Codec> codec;  // of an update
};

struct SumShape {
  kernels::ChunkLayout layout;
  std::size_t integer_count = 0;
  int scale_bits = 0;
};

class Sum {
 public:
  explicit Sum(Runtime& runtime) : runtime_(runtime), lane_(runtime.strand) {}

  Lane& lane() { return lane_; }

  std::uint64_t stage(StagedArrival arrival);  // gives it its id
  const StagedArrival* find(std::uint64_t id) const;
  std::optional<StagedArrival> drop(std::uint64_t id);  // none when it is gone, or being taken
  void drop_all();

  // Queued: adds the arrival, then `done` with its contributors and the probes that the sum now holds.
  void take(std::uint64_t id, std::function<void(const StagedArrival&, const round::ContributorSet&)> done);
  // Queued: back to nothing, in the same memory when the shape is the same.
  void reset(SumShape shape);

  // For work on the lane: the sum must not change meanwhile.
  aggregate::Accumulator& accumulator() { return *accumulator_; }
  const SumShape& shape() const { return shape_; }

 private:
  net::Awaitable<void> do_take(std::uint64_t id,
                               std::function<void(const StagedArrival&, const round::ContributorSet&)> done);
  net::Awaitable<void> do_reset(SumShape shape);

  Runtime& runtime_;
  Lane lane_;
  SumShape shape_;
  std::unique_ptr<aggregate::Accumulator> accumulator_;
  std::optional<aggregate::Probe> probe_;
  std::map<std::uint64_t, StagedArrival> staged_;
  std::uint64_t last_id_ = 0;
};

// Calls f(0) ... f(count - 1) on the pool's threads, at most so many at a time as it has; the first error ends it.
net::Awaitable<Status> for_each_chunk(Runtime& runtime, std::size_t count, std::function<Status(std::size_t)> f);

}  // namespace fluvial::tree
