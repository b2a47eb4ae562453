// Who belongs to the federation and who is here: the journal's nodes and leases, and the members that are connected,
// directly or below an aggregator. On the node's strand; what the journal must remember goes through the pool.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "coordinator/logic/run_machine.h"
#include "core/identity/certificate.h"
#include "core/identity/deny.h"
#include "core/store/journal.h"
#include "core/tree/hub.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

struct Member {
  NodeId node;
  Role role = Role::kSite;
  NodeId parent;  // 0: the coordinator
  NodeId via;     // the child of ours it is below; itself when it is a child
  Epoch lease;
  Incarnation incarnation;
};

class Registry {
 public:
  Registry(tree::Runtime& runtime, store::CoordinatorJournal& journal, std::shared_ptr<identity::DenyList> deny)
      : runtime_(runtime), journal_(journal), deny_(std::move(deny)) {}

  Status load();  // once, before the strand runs; blocking

  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity peer, std::string advertise);
  Status may_join(const tree::Child& child) const;

  void child_joined(const tree::Child& child);
  void child_left(NodeId child);
  // Returns the sites that came up. Members whose lease is not the current one are not counted as here.
  std::vector<SiteId> members_changed(NodeId child, const v1::MemberChange& change);

  void enrolled(const store::NodeRow& row) { nodes_[row.id] = row; }
  net::Awaitable<Status> revoke(std::string name, NodeId* revoked);

  std::map<SiteId, SiteInfo> connected_sites() const;
  const std::map<NodeId, Member>& members() const { return members_; }
  const std::map<NodeId, store::NodeRow>& nodes() const { return nodes_; }
  const store::LeaseRow* lease_of(NodeId node) const;
  std::string name_of(NodeId node) const;
  NodeId via(NodeId node) const;  // 0: not here
  // The child of ours that the node belongs below by the leases, connected or not; itself for a child.
  NodeId branch(NodeId node) const;

 private:
  void refresh_deny_list();
  std::map<NodeId, std::size_t> children_by_lease() const;

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  std::shared_ptr<identity::DenyList> deny_;
  std::map<NodeId, store::NodeRow> nodes_;
  std::map<NodeId, store::LeaseRow> leases_;
  std::map<NodeId, Member> members_;
};

}  // namespace fluvial::coordinator
