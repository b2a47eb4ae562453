// Whether a child holds the lease that it names: by the coordinator's signature, whose key this aggregator learns with
// its own lease. On the node's strand.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "core/identity/certificate.h"
#include "core/round/lease.h"
#include "core/tree/hub.h"
#include "core/tree/uplink.h"

namespace fluvial::aggregator {

class LeaseGate {
 public:
  explicit LeaseGate(const identity::PeerIdentity& self) : self_(self.node), key_(self.key.id()) {}

  void granted(const tree::Lease& own);
  // kStale: it comes for another lease, since this one is older than one that it has shown, or not known here yet.
  // kUnauthenticated, kPermissionDenied, kInvalidArgument: it holds no such lease. Before this aggregator has a lease
  // it lets nobody in; under one that is not signed, everybody: the root checks leases when it counts members.
  Status admit(const tree::Child& child, const identity::PeerIdentity& peer);
  // The coordinator says so of a member that cannot show its lease. The node that it names as parent; 0: it is not
  // the coordinator's word.
  NodeId told(const v1::Signed& lease);

 private:
  NodeId self_;
  Digest key_;
  bool has_lease_ = false;
  std::optional<identity::PublicKey> coordinator_;  // that signed its own lease
  std::map<NodeId, v1::Signed> told_;               // of members that are to come here
  round::NewestLeases newest_;
};

}  // namespace fluvial::aggregator
