// Carries out what the run's machine decides: journal, messages to children, the sum, the model, timers. One active run
// at a time. On the node's strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "coordinator/service/commands.h"
#include "coordinator/service/roll_call.h"
#include "coordinator/service/run_steps.h"

namespace fluvial::coordinator {

class RunService final : private tree::RoundOwner, private RunHost {
 public:
  struct Keeps {
    store::CoordinatorJournal& journal;
    store::ModelStore& models;
    const OrderSigner& signer;
    const Authorship& authorship;
    Epoch epoch;
  };
  RunService(tree::Runtime& runtime, net::TaskGroup& tasks, const Keeps& keeps, Registry& registry,
             RunObserver& observer, tree::Hub& hub);

  net::Awaitable<void> run_lane() { return side_.lane().run(); }
  void stop();

  net::Awaitable<void> take_up() { return starter_.take_up(); }
  net::Awaitable<Result<RunId>> start(PrepareRun prepare) { return starter_.start(std::move(prepare)); }
  void child_joined(NodeId child);                           // it is told of the run that has not ended
  std::optional<RunId> active_run() const;                   // that has not ended
  const ActiveRun* active() const { return active_.get(); }  // also when it is done: the last one

  // A person's commands. They return once the journal has what was wanted, or with the reason why it has not: the run
  // is then what it was.
  net::Awaitable<Status> pause(RunId run, std::string reason);
  net::Awaitable<Status> resume(RunId run);
  net::Awaitable<Status> stop_run(RunId run, std::string reason);

  void reported(const round::NodeReport& report);  // of a member
  RunMembers& members() { return members_; }
  RunSteps& steps() { return steps_; }
  tree::ParentSide& parent_side() { return side_; }
  const tree::Sum& sum() const { return side_.sum(); }
  Result<transfer::Terms> terms(bool brings_integers) override;  // of the open round
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref);
  std::string fault() const { return steps_.health().fault(); }
  RollCall& roll_call() { return roll_call_; }

 private:
  bool is_current(RunId run, RoundId round) const override;
  bool takes(RunId run, RoundId round, bool is_update) const override;
  round::MadeFrom made_from() const override;
  const round::Gather& gather() const override { return active_->machine.gather(); }
  AttemptId open_attempt() const override;
  bool is_here(SiteId site) const override { return registry_.book().via(site) != NodeId(0); }
  void heard(SiteId site) override;
  Status may_take(const transfer::UpdateHead& head) const override;
  Status may_take(const transfer::PartialHead& head) const override;
  std::uint32_t share(SiteId site) const override { return active_->machine.share_of(site); }
  std::vector<SiteId> miscounted(const round::ContributorSet& contributors) const override {
    return active_->machine.miscounted(contributors);
  }
  NodeId via(SiteId site) const override { return registry_.book().branch(site); }
  NodeId way_to(const round::Participant& participant) const override { return via(participant.site); }
  bool may_bring(NodeId child, SiteId site) const override { return via(site) == child; }
  void staged(ArrivalId arrival, const round::Arrival& what) override;
  void taken(ArrivalId arrival, const round::ContributorSet& with_probes) override;
  void take_failed(ArrivalId arrival, NodeId child, const Error& error) override;
  void will_not_be_in(const round::Refusal& refusal) override;
  void has_declined(AttemptId attempt, const round::Refusal& refusal) override;
  bool knows_authors() override { return true; }
  void are_accused(NodeId by, const std::vector<round::Refusal>& conflicts) override;

  ActiveRun* current() override { return active_.get(); }
  void send_openings(const std::set<NodeId>& children) override;
  void carry_out(Effects effects) override;
  void carry_out(const RecordAttempt& effect) { steps_.begin(effect); }
  void carry_out(const OpenRound& effect);
  void carry_out(const TellMoved& effect) { members_.tell_moved(effect.sites); }
  void carry_out(const SetTimer& effect);
  void carry_out(const Take& effect);
  void carry_out(const Release& effect) { side_.release(effect.arrival); }
  void carry_out(const Drop& effect) { side_.drop(effect.arrival, effect.error); }
  void carry_out(const Reduce& effect) { steps_.begin(effect); }
  void carry_out(const Finalise& effect) { steps_.begin(effect); }
  void carry_out(const RecordCommit& effect) { steps_.begin(effect); }
  void carry_out(const Publish& effect) { steps_.publish(effect); }
  void carry_out(const RecordStatus& effect) { steps_.begin(effect); }
  void carry_out(const TellStatus& effect);
  void carry_out(const Answer& effect) { commands_.answer(effect.result); }

  void activate(std::unique_ptr<ActiveRun> run);
  void note_refusal(const round::Refusal& refusal);
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  Registry& registry_;
  RunObserver& observer_;
  tree::Hub& hub_;
  tree::ParentSide side_;
  RollCall roll_call_;
  RunMembers members_;
  RunSteps steps_;
  RunStarter starter_;
  Commands commands_;
  net::Timer timer_;
  std::unique_ptr<ActiveRun> active_;
  v1::Envelope told_;  // its state, as children were told it last
};

}  // namespace fluvial::coordinator
