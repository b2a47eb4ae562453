// Carries out what the run's machine decides: journal, messages to children, the sum, the model, timers. One active run
// at a time. On the node's strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "coordinator/model/finalise.h"
#include "coordinator/service/commands.h"
#include "coordinator/service/disk_health.h"
#include "coordinator/service/registry.h"
#include "coordinator/service/run_observer.h"
#include "coordinator/service/run_starter.h"
#include "core/net/task_group.h"
#include "core/net/throttle.h"
#include "core/net/timer.h"
#include "core/tree/hub.h"
#include "core/tree/parent_side.h"

namespace fluvial::coordinator {

class RunService final : private tree::RoundOwner {
 public:
  using ModelCommitted = std::function<void(const round::ModelRef&, SharedBytes, std::shared_ptr<const round::Schema>)>;

  RunService(tree::Runtime& runtime, net::TaskGroup& tasks, store::CoordinatorJournal& journal,
             store::ModelStore& models, Registry& registry, RunObserver& observer, tree::Hub& hub, Epoch epoch);

  void on_commit(ModelCommitted hook) { model_committed_ = std::move(hook); }  // told of each committed model
  net::Awaitable<void> run_lane() { return side_.lane().run(); }
  void stop();

  net::Awaitable<void> take_up() { return starter_.take_up(); }
  net::Awaitable<Result<RunId>> start(store::RunRow row, Buffer model) {
    return starter_.start(std::move(row), std::move(model));
  }
  std::optional<RunId> active_run() const;                   // that has not ended
  const ActiveRun* active() const { return active_.get(); }  // also when it is done: the last one

  // A person's commands. They return once the journal has what was wanted, or with the reason why it has not: the run
  // is then what it was.
  net::Awaitable<Status> pause(RunId run, std::string reason);
  net::Awaitable<Status> resume(RunId run);
  net::Awaitable<Status> stop_run(RunId run, std::string reason);

  // From the hub.
  tree::ParentSide& parent_side() { return side_; }
  const tree::Sum& sum() const { return side_.sum(); }
  Result<transfer::Terms> terms(bool brings_integers) override;  // of the open round
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref);
  void members_changed(const std::vector<SiteId>& sites_up);  // looked at soon, with others'
  void node_moved(NodeId node, Epoch lease);                  // granted, durably
  void revoked(NodeId node);                                  // durably
  void replaced(NodeId node);  // it has enrolled anew: whoever came with its old certificate goes
  void quarantine_changed();   // a quarantine was lifted
  // Ends their sessions with us, or with whoever is their parent below us.
  void dismiss(const std::vector<NodeId>& nodes, const Error& reason);

  std::string fault() const { return health_.fault(); }

 private:
  bool is_current(RunId run, RoundId round) const override;
  const round::Gather& gather() const override { return active_->machine.gather(); }
  Status may_take(const transfer::UpdateHead& head) const override;
  Status may_take(const transfer::PartialHead& head) const override;
  NodeId via(SiteId site) const override { return registry_.book().branch(site); }
  NodeId way_to(const round::Participant& participant) const override { return via(participant.site); }
  bool may_bring(NodeId child, SiteId site) const override { return via(site) == child; }
  void staged(ArrivalId arrival, const round::Arrival& what) override;
  void taken(ArrivalId arrival, const round::ContributorSet& with_probes) override;
  void take_failed(ArrivalId arrival, NodeId child, const Error& error) override;
  void will_not_be_in(const round::Refusal& refusal) override;
  void has_declined(AttemptId attempt, const round::Refusal& refusal) override;

  void carry_out(Effects effects);
  void carry_out(const RecordAttempt& effect);
  void carry_out(const OpenRound& effect);
  void carry_out(const TellMoved& effect);
  void carry_out(const SetTimer& effect);
  void carry_out(const Take& effect);
  void carry_out(const Release& effect) { side_.release(effect.arrival); }
  void carry_out(const Drop& effect) { side_.drop(effect.arrival, effect.error); }
  void carry_out(const Finalise& effect);
  void carry_out(const RecordCommit& effect);
  void carry_out(const Publish& effect);
  void carry_out(const RecordStatus& effect);
  void carry_out(const TellStatus& effect);
  void carry_out(const Answer& effect) { commands_.answer(effect.result); }

  net::Awaitable<void> record_attempt(RecordAttempt effect);
  net::Awaitable<void> do_finalise(Finalise effect);
  net::Awaitable<void> record_commit(RecordCommit effect);
  net::Awaitable<void> record_status(RecordStatus effect);
  void activate(std::unique_ptr<ActiveRun> run);
  net::Awaitable<void> prune(RunId run, ModelVersion last, std::uint64_t kept);
  void look_at_members();
  void send_openings(const std::set<NodeId>& children);
  void tell_moved(const std::vector<SiteId>& sites);
  void note_refusal(const round::Refusal& refusal);
  void note_conflict(const round::Refusal& refusal);
  net::Awaitable<void> quarantine(SiteId site, std::string reason);
  void refuse_barred();
  void send_home();
  void step_failed(Step step, DiskPart part, Error error);
  bool is_due(Step step) const { return active_ && active_->machine.awaits(step); }
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  store::CoordinatorJournal& journal_;
  store::ModelStore& models_;
  Registry& registry_;
  RunObserver& observer_;
  tree::Hub& hub_;
  ModelCommitted model_committed_;
  tree::ParentSide side_;
  RunStarter starter_;
  Commands commands_;
  DiskHealth health_;
  std::vector<SiteId> sites_up_;  // since the last look
  net::Throttle look_;
  net::Timer timer_;
  net::Timer home_timer_;
  std::optional<TimePoint> home_at_;  // when home_timer_ fires
  std::unique_ptr<ActiveRun> active_;
  std::optional<NextModel> next_;
  struct Since {
    TimePoint at;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
  };
  std::optional<Since> since_;  // when the round began that this process opened last
};

}  // namespace fluvial::coordinator
