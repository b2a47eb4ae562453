// The sum of one node and what waits to go into it: verified arrivals are held staged until the node's machine says
// release or drop, also after they were taken, so that the sum can be made again without some of them. On the node's
// strand; the arithmetic (core/transfer/node_sum.h) runs on the pool, one operation after the other (lane.h).
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>

#include "core/net/pool_parallel.h"
#include "core/transfer/node_sum.h"
#include "core/tree/lane.h"
#include "core/tree/runtime.h"

namespace fluvial::tree {

class Sum {
 public:
  using Staged = std::shared_ptr<const transfer::StagedArrival>;
  using Taken = std::function<void(const transfer::StagedArrival&, const Result<round::ContributorSet>&)>;

  explicit Sum(Runtime& runtime) : runtime_(runtime), lane_(runtime.strand), parallel_(runtime.pool) {}

  Lane& lane() { return lane_; }
  const Lane& lane() const { return lane_; }

  std::uint64_t stage(transfer::StagedArrival arrival);  // gives it its id
  Staged find(std::uint64_t id) const;                   // null when it is gone
  // Gone from here on, and its place in the budget given back (once it is not being added any more). Null when it was
  // gone before. release(): what it brought is counted elsewhere; drop(): it is not wanted.
  void release(std::uint64_t id) { staged_.erase(id); }
  Staged drop(std::uint64_t id);
  void drop_all();
  std::size_t staged_count() const { return staged_.size(); }

  // Queued: adds the arrival, which stays staged, then `done` with its contributors and the probes that the sum now
  // holds, or with why it could not be added: then a part of it may be in the sum, and a reset must follow. Nothing
  // when it is gone by then, or when it has gone meanwhile (then a reset must follow, too). `admitted_on`: it is
  // admitted anew, on that model.
  void take(std::uint64_t id, std::optional<ModelVersion> admitted_on, Taken done);
  // Queued: back to nothing, in the same memory when the shape is the same.
  void reset(transfer::SumShape shape);

  // For work on the lane: the sum must not change meanwhile.
  const transfer::NodeSum& node() const { return node_; }
  const transfer::SumShape& shape() const { return node_.shape(); }
  TimePoint adding_since() const { return adding_since_; }  // the arrival that `done` is told of, or that is next

 private:
  net::Awaitable<void> do_take(std::uint64_t id, std::optional<ModelVersion> admitted_on, Taken done);
  net::Awaitable<void> do_reset(transfer::SumShape shape);

  Runtime& runtime_;
  Lane lane_;
  net::PoolParallel parallel_;
  transfer::NodeSum node_;
  std::map<std::uint64_t, std::shared_ptr<transfer::StagedArrival>> staged_;
  std::uint64_t last_id_ = 0;
  TimePoint adding_since_;
};

}  // namespace fluvial::tree
