// Carries out what the book (Federation) decides about nodes and leases: what must be remembered goes through the
// journal on the pool before anybody is answered, messages become the book's words. On the node's strand.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "coordinator/logic/federation.h"
#include "core/identity/certificate.h"
#include "core/identity/deny.h"
#include "core/store/journal.h"
#include "core/tree/hub.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

class Registry {
 public:
  Registry(tree::Runtime& runtime, store::CoordinatorJournal& journal, std::shared_ptr<identity::DenyList> deny,
           const FailoverSettings& failover)
      : runtime_(runtime), journal_(journal), deny_(std::move(deny)), book_(failover) {}

  Status load();  // once, before the strand runs; blocking

  const Federation& book() const { return book_; }

  // The lease is durable when this has ended.
  net::Awaitable<Result<LeaseAnswer>> lease(identity::PeerIdentity peer, v1::LeaseRequest request);
  net::Awaitable<Result<NodeId>> revoke(std::string name);
  net::Awaitable<Status> quarantine(SiteId site, std::string reason);
  net::Awaitable<Result<NodeId>> clear(std::string name);  // lifts a quarantine
  void enrolled(const store::NodeRow& row);

  void child_joined(const tree::Child& child);
  void child_left(NodeId child) { book_.child_left(child, now()); }
  // Returns the sites that came up.
  std::vector<SiteId> members_changed(NodeId child, const v1::MemberChange& change);
  std::vector<NodeId> send_home() { return book_.send_home(now()); }

 private:
  void refresh_deny_list();
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  std::shared_ptr<identity::DenyList> deny_;
  Federation book_;
};

v1::LeaseGrant to_proto(const LeaseAnswer& answer);

}  // namespace fluvial::coordinator
