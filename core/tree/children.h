// A parent's children, as far as the open round goes: the hub, and whatever stands in for it.
#pragma once

#include <cstdint>
#include <set>

#include "core/transfer/round_book.h"

namespace fluvial::tree {

// On the node's strand.
class Children {
 public:
  virtual ~Children() = default;
  virtual std::set<NodeId> nodes() const = 0;
  virtual void send(NodeId child, v1::Envelope message) = 0;  // nothing when it is not here
  // Of the open round, which the owner opens and closes: contradictions, and transfers that were cut off.
  virtual transfer::RoundBook& book() = 0;
  virtual const store::StagingBudget& budget() const = 0;  // that what they bring counts against
  // What they bring is for a model of so many parameters from here on: a budget that nobody has given follows it.
  virtual void sums(std::uint64_t value_count) = 0;
};

}  // namespace fluvial::tree
