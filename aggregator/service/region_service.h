// Carries out what the region's machine decides: to its children it is what the coordinator is to it, to its parent a
// child. On the node's strand.
#pragma once

#include <map>
#include <memory>
#include <optional>

#include "aggregator/logic/region_history.h"
#include "aggregator/service/lease_gate.h"
#include "aggregator/service/members.h"
#include "aggregator/service/model_relay.h"
#include "aggregator/service/parent_absence.h"
#include "aggregator/service/partial_upload.h"
#include "core/tree/denials.h"
#include "core/tree/orders.h"
#include "core/tree/parent_owner.h"
#include "core/tree/renewal.h"
#include "core/tree/reporter.h"
#include "core/tree/vectors.h"

namespace fluvial::aggregator {

class RegionService : public tree::ParentOwner, public tree::UplinkOwner, private tree::RoundOwner {
 public:
  // `parentless_max`: how long it may have no parent before its children are sent to the coordinator.
  RegionService(tree::Runtime& runtime, net::TaskGroup& tasks, const identity::PeerIdentity& self,
                RegionObserver& observer, tree::HubOptions options, Duration parentless_max);

  tree::Hub& hub() { return hub_; }
  void attach(tree::Uplink& uplink, std::function<void(bool)> up_changed);
  net::Awaitable<void> run_lane() { return side_.lane().run(); }
  void stop();
  std::string status_json(const std::string& name) const;
  void with_renewal(tree::Renewal& renewal);  // before the strand runs; it outlives this
  const tree::Sum& sum() const { return side_.sum(); }
  const v1::Denials* denials() const { return denials_.last(); }  // that it follows; null: none was heard

  // From below.
  Status may_join(const tree::Child& child) override;
  void child_joined(const tree::Child& child) override;
  void child_left(NodeId child) override;
  void members_changed(NodeId child, const v1::MemberChange& change) override;
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity peer, v1::LeaseRequest request,
                                               std::string remote) override;
  net::Awaitable<void> outcome_asked(NodeId child, v1::OutcomeQuery query) override;
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref) override;
  void reported(NodeId child, round::NodeReport report) override;

  // From above.
  net::Awaitable<Result<round::Standing>> standing() override;
  net::Awaitable<Status> granted(round::Lineage lineage, Epoch lease) override;
  Status denials_told(round::HistoryId history, const identity::PublicKey& coordinator,
                      const v1::Denials* denials) override;
  std::uint64_t trust() const override { return renewal_ == nullptr ? 0 : renewal_->trust(); }
  const v1::Denials* denials_heard() const override { return denials_.last(); }
  void renewal_told(Duration validity, std::uint64_t trust) override;
  void parent_up(const tree::Lease& lease) override;
  void parent_down(const Error& why) override;
  net::Awaitable<Status> from_parent(net::Frame frame) override;

 protected:
  const RegionMachine& machine() const { return machine_; }
  Result<transfer::Terms> terms(bool brings_integers) override;  // of the open round
  void staged(ArrivalId arrival, const round::Arrival& what) override;
  void taken(ArrivalId arrival, const round::ContributorSet& with_probes) override;

 private:
  tree::ParentSide& side() override { return side_; }
  bool is_current(RunId run, RoundId round) const override;
  bool takes(RunId run, RoundId round, bool is_update) const override {
    return opening_ && machine_.takes(run, round, is_update);
  }
  round::MadeFrom made_from() const override {
    return opening_ && opening_->pass ? opening_->pass->made_from() : round::MadeFrom{};
  }
  const round::Gather& gather() const override { return machine_.gather(); }
  AttemptId open_attempt() const override;
  bool is_here(SiteId site) const override { return via(site) != NodeId(0); }
  void heard(SiteId site) override { machine_.heard(site); }
  Status may_take(const transfer::UpdateHead& head) const override;
  Status may_take(const transfer::PartialHead& head) const override;
  NodeId via(NodeId node) const override { return members_.via(node); }
  NodeId way_to(const round::Participant& participant) const override { return members_.way_to(participant); }
  bool may_bring(NodeId child, SiteId site) const override;
  std::uint32_t share(SiteId site) const override { return machine_.gather().share(site); }
  std::vector<SiteId> miscounted(const round::ContributorSet& contributors) const override {
    return machine_.miscounted(contributors);
  }
  void take_failed(ArrivalId arrival, NodeId child, const Error& error) override;
  void will_not_be_in(const round::Refusal& refusal) override;
  void has_declined(AttemptId attempt, const round::Refusal& refusal) override;
  bool knows_authors() override { return false; }
  // The partial is refused; who lies, only the root could tell.
  void are_accused(NodeId, const std::vector<round::Refusal>&) override {}

  void carry_out(Effects effects);
  void carry_out(const ResetSum& effect);
  void carry_out(const OpenRound& effect);
  void carry_out(const SetTimer& effect);
  void carry_out(const Take& effect) { side_.take(effect.arrival, effect.admitted_on); }
  void carry_out(const Release& effect) { side_.release(effect.arrival); }
  void carry_out(const Drop& effect) { side_.drop(effect.arrival, effect.error); }
  void carry_out(const SendPartial& effect) { upload_.send(effect); }

  void tell_parent(v1::MemberChange change);
  void forget_history();
  Status denials_passed_on(const v1::Denials& message);  // by the parent
  void follow_denials();
  void certificate_renewed(const std::string& chain_pem);
  void dismissed(const v1::MemberChange& change);
  void ask_runs();  // whether those that it knows of go on
  Status run_told(const v1::RunState& message);
  Status round_opened(const v1::RoundOpen& message);
  Status round_committed(const v1::RoundCommit& message);
  Status receipt_came(const v1::Receipt& message);
  Status model_comes(const v1::ModelAhead& message);
  void want_model(const round::ModelRef& model);
  void want_vector(const wire::Opening& opening);
  void base_is_here();
  round::NodeReport own_report() const;
  void send_openings();
  void give_up_round();
  void send_children_away();  // they do not notice that this node leads nowhere
  void relay_down(NodeId node, v1::Envelope message);
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  NodeId self_;
  RegionObserver& observer_;
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  tree::HeardDenials denials_;
  tree::Hub hub_;
  tree::Uplink* uplink_ = nullptr;
  tree::Orders orders_;
  std::function<void(bool)> up_changed_;
  tree::ParentSide side_;
  ModelRelay model_;
  tree::Vectors vectors_;  // that rounds hand down beside the model
  PartialUpload upload_;
  net::Timer timer_;
  ParentAbsence absence_;
  Members members_;
  LeaseGate gate_;
  RegionHistory history_;
  RegionMachine machine_;

  std::shared_ptr<const wire::Opening> opening_;  // as the parent said it
  TimePoint opened_at_;
  std::shared_ptr<const kernels::Codec> codec_;
  std::map<RunId, v1::RunState> over_;         // runs of which the children were told that they are
  std::map<RunId, v1::RunState> active_;       // likewise, that they go on: whoever joins is told of them
  bool parent_is_new_ = true;                  // no opening has come in this session to the parent yet
  std::optional<round::ModelRef> next_model_;  // when the one is here that is on its way
  bool awaits_base_ = false;                   // somebody was turned away because the base is not here yet
  telemetry::Measuring measuring_;
  tree::Renewal* renewal_ = nullptr;  // null: the certificate is not renewed
  tree::Reporter reporter_;
};

}  // namespace fluvial::aggregator
