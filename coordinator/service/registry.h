// Carries out what the book (Federation) decides about nodes and leases: what must be remembered goes through the
// journal on the pool before anybody is answered, messages become the book's words. On the node's strand.
#pragma once

#include <map>
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
  const round::Lineage& lineage() const { return lineage_; }
  // Rounds that are lost with a restore, as members know of them.
  const std::vector<store::LostRow>& lost() const { return lost_; }
  // What had become of the update of the site that knows of the round; empty: it is an aggregator.
  std::string_view known_name(const store::LostRow& row) const;
  // Members that know of more than the journal, and what: until they come and do not.
  const std::map<NodeId, std::string>& ahead() const { return ahead_; }

  // The lease is durable when this has ended. kFailedPrecondition: the node knows of what the journal should hold.
  net::Awaitable<Result<LeaseAnswer>> lease(identity::PeerIdentity peer, v1::LeaseRequest request);
  v1::LeaseGrant to_proto(const LeaseAnswer& answer) const;
  net::Awaitable<Result<NodeId>> revoke(std::string name);
  // Revoked, and not listed any more. kFailedPrecondition while it is connected and not revoked.
  net::Awaitable<Result<NodeId>> remove(std::string name);
  net::Awaitable<Status> quarantine(SiteId site, std::string reason);
  net::Awaitable<Result<NodeId>> clear(std::string name);  // lifts a quarantine
  bool enrolled(const store::NodeRow& row);                // whether another certificate of it is void from now on

  void child_joined(const tree::Child& child);
  void child_left(NodeId child) { book_.child_left(child, now()); }
  // Returns the sites that came up.
  std::vector<SiteId> members_changed(NodeId child, const v1::MemberChange& change);
  std::vector<NodeId> send_home() { return book_.send_home(now()); }

 private:
  net::Awaitable<Status> meet(NodeId node, v1::Standing shown);
  void note_lost(const std::vector<store::LostRow>& rows);
  void refresh_deny_list();
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  std::shared_ptr<identity::DenyList> deny_;
  Federation book_;
  round::Lineage lineage_;
  std::vector<store::LostRow> lost_;
  std::map<NodeId, std::string> ahead_;
};

}  // namespace fluvial::coordinator
