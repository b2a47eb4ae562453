// The parts of a coordinator, put together.
#pragma once

#include <memory>
#include <string>

#include "coordinator/service/admin.h"
#include "coordinator/service/enrol_server.h"
#include "coordinator/service/evaluator.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/retention.h"
#include "coordinator/service/run_report.h"
#include "coordinator/service/run_service.h"
#include "core/identity/authority.h"
#include "core/identity/credentials.h"
#include "core/tree/hub.h"
#include "core/tree/process.h"

namespace fluvial::coordinator {

// What is on the disk, opened.
struct Holdings {
  std::unique_ptr<store::CoordinatorJournal> journal;
  std::optional<store::ModelStore> models;
  std::optional<identity::CertificateAuthority> authority;
  std::optional<identity::Credentials> credentials;
  std::string federation;
  Epoch epoch;
};
Result<Holdings> open_holdings(tree::Runtime& runtime, const config::CoordinatorSettings& settings);

class Service final : public tree::HubOwner {
 public:
  Service(tree::Process& process, const config::CoordinatorSettings& settings, Holdings holdings);

  Status open();  // listens everywhere
  std::string ready_json() const;
  void start();  // spawns everything
  void stop();   // on the strand

  Status may_join(const tree::Child& child) override { return registry_.book().may_join(child.node, child.lease); }
  void child_joined(const tree::Child& child) override;
  void child_left(NodeId child) override;
  void members_changed(NodeId child, const v1::MemberChange& change) override;
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity peer, v1::LeaseRequest request) override;
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override { return side().admit(head); }
  Result<transfer::Terms> admit(const transfer::PartialHead& head) override { return side().admit(head); }
  std::vector<SiteId> without(const transfer::PartialHead& head) override { return side().without(head); }
  void arrived(transfer::StagedArrival arrival) override { side().arrived(std::move(arrival)); }
  void refused(RunId run, RoundId round, const round::Refusal& refusal) override {
    side().refused(run, round, refusal);
  }
  void declined(NodeId child, const round::Decline& decline) override { side().declined(child, decline); }
  void outcome_asked(NodeId child, const v1::OutcomeQuery& query) override;
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref) override { return runs_.model(ref); }

 private:
  tree::ParentSide& side() { return runs_.parent_side(); }
  net::Awaitable<void> answer_outcome(NodeId child, v1::OutcomeQuery query);
  net::Awaitable<void> record_evaluation(RunId run, RoundId round, round::Metrics metrics);

  tree::Process& process_;
  tree::Runtime& runtime_;
  config::CoordinatorSettings settings_;
  Holdings holdings_;
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  Registry registry_;
  Feed feed_;
  RunReport report_;
  tree::Hub hub_;  // before what holds staged updates: they count against its budget
  RunService runs_;
  Retention retention_;
  EnrolServer enrol_;
  Admin admin_;
  std::shared_ptr<Evaluator> evaluator_;
  AdminFacts facts_;
  std::string admin_socket_;
  std::string worker_socket_;
};

}  // namespace fluvial::coordinator
