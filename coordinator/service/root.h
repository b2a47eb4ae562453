// What the coordinator is to the tree: its children's sessions, the book of nodes, the runs, and what passes between
// them. The whole of it but the ports, people and authority around it (service.h). On the node's strand.
#pragma once

#include <memory>

#include "coordinator/service/admission_log.h"
#include "coordinator/service/authorship.h"
#include "coordinator/service/order_signer.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/renewal_desk.h"
#include "coordinator/service/reports.h"
#include "coordinator/service/run_service.h"
#include "core/tree/parent_owner.h"

namespace fluvial::coordinator {

class Root : public tree::ParentOwner {
 public:
  struct Keeps {  // what it keeps things in; all of it outlives it
    store::CoordinatorJournal& journal;
    store::ModelStore& models;
    Epoch epoch;                                   // this process' term
    std::optional<identity::PrivateKey> key = {};  // that it signs with; none: it signs nothing
  };
  Root(tree::Runtime& runtime, net::TaskGroup& tasks, Keeps keeps, RunObserver& observer, tree::HubOptions options,
       const FailoverSettings& failover);

  Status load();  // once, before the strand runs; blocking

  void replaced(NodeId node);  // it has enrolled anew

  Registry& registry() { return registry_; }
  tree::Hub& hub() { return hub_; }
  RunService& runs() { return runs_; }
  OrderSigner& signer() { return signer_; }
  const identity::DenyList& deny() const { return *deny_; }
  const Reports& reports() const { return reports_; }

  Status may_join(const tree::Child& child) override { return registry_.book().may_join(child.node, child.lease); }
  void child_joined(const tree::Child& child) override;
  void child_left(NodeId child) override;
  void members_changed(NodeId child, const v1::MemberChange& change) override;
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity peer, v1::LeaseRequest request,
                                               std::string remote) override;
  net::Awaitable<v1::RenewReply> renew(identity::PeerIdentity peer, v1::RenewRequest request,
                                       std::string remote) override;
  void with_renewals(RenewalDesk& desk) { renewals_ = &desk; }     // without: nobody renews
  void with_admissions(AdmissionLog& log) { admissions_ = &log; }  // without: no entry says who is admitted
  net::Awaitable<void> outcome_asked(NodeId child, v1::OutcomeQuery query) override;
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref) override { return runs_.model(ref); }
  void reported(NodeId child, round::NodeReport report) override;
  std::vector<round::Refusal> forged(const tree::Child& child, const transfer::Brought& brought) override;

 private:
  tree::ParentSide& side() override { return runs_.parent_side(); }
  void tell_leases(NodeId parent);
  void refused_changed();
  const v1::Denials* denials() const { return denials_ ? &*denials_ : nullptr; }
  net::Awaitable<Result<LeaseAnswer>> registered(identity::PeerIdentity peer, v1::LeaseRequest request,
                                                 std::string remote);

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  Registry registry_;
  OrderSigner signer_;
  Authorship authorship_;
  telemetry::RootMetrics counts_;
  std::optional<v1::Denials> denials_;  // as they stand, signed; none: this coordinator signs nothing
  Reports reports_;
  RenewalDesk* renewals_ = nullptr;
  AdmissionLog* admissions_ = nullptr;
  tree::Hub hub_;  // before what holds staged updates: they count against its budget
  RunService runs_;
};

}  // namespace fluvial::coordinator
