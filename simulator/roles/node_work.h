// The sum of one node and what waits to go into it: core/tree/sum.h in virtual time.
#pragma once

#include <functional>
#include <map>
#include <memory>

#include "core/transfer/node_sum.h"
#include "simulator/roles/cast.h"
#include "simulator/roles/lane.h"

namespace fluvial::simulator {

class NodeWork {
 public:
  using Staged = std::shared_ptr<const transfer::StagedArrival>;
  using Taken = std::function<void(const transfer::StagedArrival&, const Result<round::ContributorSet>& with_probes)>;

  NodeWork(Cast& cast, HostId host) : cast_(cast), host_(host), lane_(cast.world(), host) {}

  Lane& lane() { return lane_; }
  std::uint64_t stage(transfer::StagedArrival arrival);
  const transfer::StagedArrival& staged(std::uint64_t id) const { return *staged_.at(id); }
  Staged drop(std::uint64_t id);  // null when it was gone
  void release(std::uint64_t id) { staged_.erase(id); }
  void drop_all() { staged_.clear(); }
  std::size_t staged_count() const { return staged_.size(); }

  void take(std::uint64_t id, Taken done);  // queued
  void reset(transfer::SumShape shape);     // queued

  const transfer::NodeSum& node() const { return node_; }
  FlatSum flat(int scale_bits) const;  // for the checks
  Duration cost_of_merge() const;      // of one arrival
  Duration cost_of_finalise() const;

 private:
  Cast& cast_;
  HostId host_;
  Lane lane_;
  Serial serial_;
  transfer::NodeSum node_;
  std::map<std::uint64_t, Staged> staged_;
  std::uint64_t last_id_ = 0;
};

}  // namespace fluvial::simulator
