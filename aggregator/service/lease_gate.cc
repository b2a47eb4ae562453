#include "aggregator/service/lease_gate.h"

#include "core/tree/lease_statement.h"

namespace fluvial::aggregator {

void LeaseGate::granted(const tree::Lease& own) {
  has_lease_ = true;
  // Its own word: below an aggregator of the version before, which passes no signatures on, it signs no leases.
  coordinator_.reset();
  if (own.coordinator_key) coordinator_ = own.coordinator_key;
}

Status LeaseGate::admit(const tree::Child& child, const identity::PeerIdentity& peer) {
  if (!has_lease_) return Error{Code::kStale, "this aggregator has no lease of its own yet: come again"};
  if (!coordinator_) return {};
  const v1::Signed* shown = child.lease_shown.get();
  if (const auto told = told_.find(child.node); shown == nullptr && told != told_.end()) shown = &told->second;
  if (shown == nullptr) {
    return Error{Code::kStale, child.name + " shows no lease that the coordinator signed: come for one"};
  }
  FLUVIAL_ASSIGN(const round::LeaseTerms lease, tree::read_lease(*coordinator_, *shown));
  FLUVIAL_TRY(round::check_lease(lease, {peer.node, peer.key.id(), child.lease, self_, key_, child.history}));
  FLUVIAL_TRY(newest_.check(child.node, lease.epoch));
  newest_.note(child.node, lease.epoch);
  return {};
}

NodeId LeaseGate::told(const v1::Signed& lease) {
  if (!coordinator_) return NodeId(0);
  const Result<round::LeaseTerms> terms = tree::read_lease(*coordinator_, lease);
  if (!terms.ok()) return NodeId(0);
  if (terms->parent == self_) told_[terms->node] = lease;
  return terms->parent;
}

}  // namespace fluvial::aggregator
