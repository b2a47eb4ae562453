// The owner of a hub whose open round is a ParentSide's: what comes from below for the round goes there.
#pragma once

#include <utility>
#include <vector>

#include "core/tree/hub.h"
#include "core/tree/parent_side.h"

namespace fluvial::tree {

class ParentOwner : public HubOwner {
 public:
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override { return side().admit(head); }
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override { return side().admit(head); }
  bool still_takes(const transfer::UpdateHead& head) override { return side().still_takes(head); }
  std::vector<SiteId> without(const transfer::PartialHead& head) override { return side().without(head); }
  void arrived(transfer::StagedArrival arrival) override { side().arrived(std::move(arrival)); }
  void refused(RunId run, RoundId round, const round::MadeFrom& from, const round::Refusal& refusal) override {
    side().refused(run, round, from, refusal);
  }
  void accused(RunId run, RoundId round, NodeId by, const std::vector<round::Refusal>& conflicts) override {
    side().accused(run, round, by, conflicts);
  }
  bool knows_authors() override { return side().knows_authors(); }
  void declined(NodeId child, const round::Decline& decline) override { side().declined(child, decline); }

 private:
  virtual ParentSide& side() = 0;
};

}  // namespace fluvial::tree
