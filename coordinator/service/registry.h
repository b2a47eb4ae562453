// Carries out what the book (Federation) decides about nodes and leases: what must be remembered goes through the
// journal on the pool before anybody is answered, messages become the book's words. On the node's strand.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "coordinator/logic/federation.h"
#include "coordinator/logic/holders.h"
#include "coordinator/logic/operators.h"
#include "core/identity/certificate.h"
#include "core/identity/deny.h"
#include "core/store/audit_entry.h"
#include "core/store/certificate_book.h"
#include "core/store/journal.h"
#include "core/tree/hub.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

class Registry {
 public:
  Registry(tree::Runtime& runtime, store::CoordinatorJournal& journal, std::shared_ptr<identity::DenyList> deny,
           const FailoverSettings& failover, std::optional<identity::PrivateKey> key = {})
      : runtime_(runtime), journal_(journal), deny_(std::move(deny)), book_(failover), key_(std::move(key)) {}

  Status load();  // once, before the strand runs; blocking

  // Whom the journal refuses, for those who cannot ask it: aggregators. Nodes that are revoked, keys, serials.
  struct Refused {
    std::uint64_t number = 0;  // grows with each change
    identity::DenyEntries who;
  };
  const Refused& refused() const { return refused_; }
  std::optional<v1::Denials> denials() const;  // that, signed; none: this coordinator signs nothing
  void on_refused(std::function<void()> changed) { refused_changed_ = std::move(changed); }
  // Reads it anew: after an enrolment, and after whatever else was written past this class.
  net::Awaitable<void> refresh_refused();

  const Federation& book() const { return book_; }

  // People at the admin API, beside the members. Enrolled, revoked and removed as these are.
  const Operators& operators() const { return operators_; }
  // What the holder of this certificate may do, and that it came with it: the first time, its certificates of other
  // keys are refused from then on. kPermissionDenied: nothing.
  net::Awaitable<Result<Access>> admit_operator(identity::PeerIdentity peer);
  // A certificate of the same key that lasts longer was issued for an operator that was admitted: durable before it
  // leaves.
  net::Awaitable<Status> renewed_operator(identity::PeerIdentity peer, identity::Certificate issued, Digest authority,
                                          store::AuditEntry by);
  const round::Lineage& lineage() const { return lineage_; }
  // Rounds that are lost with a restore, as members know of them.
  const std::vector<store::LostRow>& lost() const { return lost_; }
  // What had become of the update of the site that knows of the round; empty: it is an aggregator.
  std::string_view known_name(const store::LostRow& row) const;
  // Members that know of more than the journal, and what: until they come and do not.
  const std::map<NodeId, std::string>& ahead() const { return ahead_; }

  // Members whose identity two machines show.
  const Holders& holders() const { return holders_; }

  // The lease is durable when this has ended. kFailedPrecondition: the node knows of what the journal should hold.
  net::Awaitable<Result<LeaseAnswer>> lease(identity::PeerIdentity peer, v1::LeaseRequest request);
  // What the member is answered. Unless it shows its lease to its parent, that one must be told (leases_to_tell).
  Result<v1::LeaseGrant> grant(const identity::PeerIdentity& peer, const LeaseAnswer& answer, bool shows_lease);
  std::vector<v1::MemberChange> leases_to_tell(NodeId parent) const;
  // Of these four the audit log says `by` whom.
  net::Awaitable<Result<NodeId>> revoke(std::string name, store::AuditEntry by = {});
  // Revoked, and not listed any more. kFailedPrecondition while it is connected and not revoked.
  net::Awaitable<Result<NodeId>> remove(std::string name, store::AuditEntry by = {});
  net::Awaitable<Status> quarantine(SiteId site, std::string reason);
  net::Awaitable<Result<NodeId>> clear(std::string name, store::AuditEntry by = {});  // lifts a quarantine
  // Whether another certificate of it is void from now on. Of its new one: the key (zeros: not known).
  bool enrolled(const store::NodeRow& row, const Digest& key = {});
  // It has got a certificate for longer; `current`: of its key, and when it was issued.
  void renewed(NodeId node, const std::string& serial, const identity::DenyEntries::Current& current);

  // What members are told with each lease of certificates: for how long they are issued now, and of which list of
  // authorities. Without it, nothing: then nobody renews.
  struct RenewalTerms {
    std::chrono::seconds validity{0};
    std::uint64_t trust = 0;
  };
  void with_renewal(std::function<RenewalTerms()> terms) { renewal_ = std::move(terms); }
  RenewalTerms renewal_terms() const { return renewal_(); }
  void on_shut_out(std::function<void()> changed) { shut_out_ = std::move(changed); }  // somebody is refused now

  void child_joined(const tree::Child& child);
  void child_left(NodeId child) { book_.child_left(child, now()); }
  // Returns the sites that came up.
  std::vector<SiteId> members_changed(NodeId child, const v1::MemberChange& change);
  std::vector<NodeId> send_home() { return book_.send_home(now()); }

 private:
  net::Awaitable<Status> take_over(v1::Denials denials);
  net::Awaitable<void> came_with(const identity::PeerIdentity& peer, const store::CertificateSeen& seen);
  Status load_current();  // blocking
  void note_holder(const identity::PeerIdentity& peer, std::uint64_t process);
  net::Awaitable<Status> meet(NodeId node, v1::Standing shown);
  bool enter(const store::NodeRow& row);  // into the book it belongs in; whether another certificate is void
  void note_lost(const std::vector<store::LostRow>& rows);
  void refresh_deny_list();
  std::string some_names(const std::vector<NodeId>& nodes) const;
  NodeId passes_nothing_on(NodeId parent) const;
  Result<v1::Signed> sign(const identity::PeerIdentity& peer, const LeaseAnswer& answer) const;
  Result<Refused> read_refused();  // blocking
  store::AuditEntry about(store::AuditKind kind, NodeId node, store::AuditEntry entry = {}) const;
  Result<NodeId> find(const std::string& name) const;  // a member or an operator
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  std::shared_ptr<identity::DenyList> deny_;
  Federation book_;
  Operators operators_;
  std::set<std::string> operators_seen_;  // serials that the journal knows as used
  round::Lineage lineage_;
  std::vector<store::LostRow> lost_;
  std::map<NodeId, std::string> ahead_;
  std::optional<identity::PrivateKey> key_;  // none: leases are not signed
  std::map<NodeId, Digest> keys_;            // of aggregators, by their last certificates
  std::map<NodeId, bool>
      passes_on_;              // aggregators that were seen: whether signatures reach those below; that they do is kept
  std::set<NodeId> said_old_;  // those of which the log says that none do
  std::map<NodeId, std::pair<NodeId, v1::Signed>> mute_;  // parent and lease of members that cannot show it
  Holders holders_;
  Refused refused_;
  std::map<NodeId, identity::DenyEntries::Current> current_;  // of members whose keys are known
  std::function<RenewalTerms()> renewal_ = [] { return RenewalTerms(); };
  std::function<void()> refused_changed_ = [] {};
  std::function<void()> shut_out_ = [] {};
};

}  // namespace fluvial::coordinator
