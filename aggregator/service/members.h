// Everybody below an aggregator, children included, and by which child: as it is told from below, and tells its parent.
// On the node's strand.
#pragma once

#include <map>
#include <vector>

#include "core/round/contribution.h"
#include "core/tree/hub.h"

namespace fluvial::aggregator {

class Members {
 public:
  explicit Members(NodeId self) : self_(self) {}

  v1::MemberChange joined(const tree::Child& child);
  v1::MemberChange left(NodeId child);  // with everybody by its way; nobody when they are below another by now
  // What the child says of those below it. It speaks for nobody whose parent it does not lead to, and takes a member
  // over from another child only with a newer lease. Returns what holds of it, to be passed on.
  v1::MemberChange changed(NodeId child, const v1::MemberChange& change);
  std::vector<v1::MemberChange> everybody() const;  // one message at least, each far from a frame's bound

  std::size_t count(Role role) const;
  NodeId via(NodeId node) const;  // the child that leads to it; 0: it is below nobody just now
  // By the lease that counts: a site that has moved may still be announced by its old parent.
  NodeId way_to(const round::Participant& participant) const;

 private:
  bool may_bring(NodeId child, const v1::Member& member) const;

  struct Below {
    v1::Member member;
    NodeId via;
  };
  NodeId self_;
  std::map<NodeId, Below> below_;
};

}  // namespace fluvial::aggregator
