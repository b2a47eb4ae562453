// Carries out what the run's machine decides: journal, messages to children, the sum, the model, timers. One active run
// at a time. On the node's strand.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <deque>
#include <functional>
#include <memory>
#include <optional>
#include <set>

#include "coordinator/logic/run_machine.h"
#include "coordinator/model/finalise.h"
#include "coordinator/service/feed.h"
#include "coordinator/service/pace_report.h"
#include "coordinator/service/registry.h"
#include "core/net/signal.h"
#include "core/net/task_group.h"
#include "core/tree/hub.h"
#include "core/tree/parent_side.h"

namespace fluvial::coordinator {

// An active run's parts that stay the same from round to round.
struct ActiveRun {
  RunMachine machine;
  std::shared_ptr<const round::Schema> schema;
  std::shared_ptr<const kernels::Codec> codec;
  aggregate::ServerOptimizer optimizer;
  std::vector<float> optimizer_state;
  std::shared_ptr<tree::ModelSlot> slot;
  std::vector<RunId> continues;  // the run before it, the one before that, ...
};

class RunService final : private tree::RoundOwner {
 public:
  using ModelCommitted = std::function<void(const round::ModelRef&, SharedBytes, std::shared_ptr<const round::Schema>)>;

  RunService(tree::Runtime& runtime, net::TaskGroup& tasks, store::CoordinatorJournal& journal,
             store::ModelStore& models, Registry& registry, Feed& feed, tree::Hub& hub, Epoch epoch);

  // Told of each committed model; while `evaluating()` the end of a run is not announced yet: the last round's
  // evaluation comes first. announce_end() when nothing is being evaluated any more.
  void on_commit(ModelCommitted hook, std::function<bool()> evaluating) {
    model_committed_ = std::move(hook);
    evaluating_ = std::move(evaluating);
  }
  void announce_end();
  bool is_ending(RunId run) const { return ending_ && ending_->run == run; }
  net::Awaitable<void> run_lane() { return side_.lane().run(); }
  void stop();

  // Takes up what the journal has not ended: what is not paused goes on. Once, before any run is started.
  net::Awaitable<void> take_up();
  // One at a time; kFailedPrecondition while a run is active or is being started.
  net::Awaitable<Result<RunId>> start(store::RunRow row, Buffer model);
  bool is_active() const {
    return active_ != nullptr && active_->machine.status() != RunStatus::kDone &&
           active_->machine.status() != RunStatus::kStopped;
  }
  const ActiveRun* active() const { return active_.get(); }  // also when it is done: the last one

  // A person's commands. They return once the journal has what was wanted, or with the reason why it has not: the run
  // is then what it was.
  net::Awaitable<Status> pause(RunId run, std::string reason);
  net::Awaitable<Status> resume(RunId run);
  net::Awaitable<Status> stop_run(RunId run, std::string reason);

  // From the hub.
  tree::ParentSide& parent_side() { return side_; }
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref);
  void members_changed(const std::vector<SiteId>& sites_up);
  void node_moved(NodeId node, Epoch lease);  // granted, durably
  void revoked(NodeId node);                  // durably
  void replaced(NodeId node);                 // it has enrolled anew: whoever came with its old certificate goes
  void quarantine_changed();                  // a quarantine was lifted
  // Ends their sessions with us, or with whoever is their parent below us.
  void dismiss(const std::vector<NodeId>& nodes, const Error& reason);

  std::string fault() const;  // why nothing is promised at present; empty: all is well

 private:
  bool is_current(RunId run, RoundId round) const override;
  const round::Gather& gather() const override { return active_->machine.gather(); }
  Status may_take(const transfer::UpdateHead& head) const override;
  Status may_take(const transfer::PartialHead& head) const override;
  Result<transfer::Terms> terms(bool brings_integers) override;
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
  void carry_out(const Take& effect) { side_.take(effect.arrival); }
  void carry_out(const Release& effect) { side_.release(effect.arrival); }
  void carry_out(const Drop& effect) { side_.drop(effect.arrival, effect.error); }
  void carry_out(const Finalise& effect);
  void carry_out(const RecordCommit& effect);
  void carry_out(const Publish& effect);
  void carry_out(const RecordStatus& effect);
  void carry_out(const TellStatus& effect);
  void carry_out(const Answer& effect);

  net::Awaitable<void> record_attempt(RecordAttempt effect);
  net::Awaitable<void> do_finalise(Finalise effect);
  net::Awaitable<void> record_commit(RecordCommit effect);
  net::Awaitable<void> record_status(RecordStatus effect);
  template <typename Give>
  net::Awaitable<Status> command(Give give);
  net::Awaitable<Status> take_up(store::RunRow row);
  net::Awaitable<Status> give_up_start(RunId run, std::string reason);
  net::Awaitable<Result<RunId>> make_run(store::RunRow row, Buffer model);
  net::Awaitable<void> prune(RunId run, ModelVersion last, std::uint64_t kept);
  net::Awaitable<Status> activate(store::RunRow row, ModelVersion version, Digest digest, Buffer model,
                                  std::vector<float> optimizer_state, std::optional<round::AttemptRecord> open);
  void send_openings(const std::set<NodeId>& children);
  void tell_moved(const std::vector<SiteId>& sites);
  void note_refusal(const round::Refusal& refusal);
  void note_conflict(const round::Refusal& refusal);
  net::Awaitable<void> quarantine(SiteId site, std::string reason);
  void refuse_barred();
  void send_home();
  void storage_failed(Step step, std::string_view part, Error error);
  void models_failed(const std::string& why);  // empty: they work
  bool is_due(Step step) const { return active_ && active_->machine.awaits(step); }
  Error with_advice(Error error) const;  // what to do about a journal that failed
  telemetry::Logger round_log() const;
  TimePoint now() const { return runtime_.clock.now(); }

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  store::CoordinatorJournal& journal_;
  store::ModelStore& models_;
  Registry& registry_;
  Feed& feed_;
  tree::Hub& hub_;
  Epoch epoch_;
  ModelCommitted model_committed_;
  std::function<bool()> evaluating_;
  std::optional<FeedLine> ending_;
  tree::ParentSide side_;
  boost::asio::steady_timer timer_;
  boost::asio::steady_timer home_timer_;
  std::optional<TimePoint> home_at_;  // when home_timer_ fires
  telemetry::Gauge quarantined_;
  telemetry::Gauge models_fault_;
  std::string models_failure_;
  std::unique_ptr<ActiveRun> active_;
  bool is_taken_up_ = false;  // what the journal has not ended
  bool is_starting_ = false;  // a run is being made
  net::AsyncSignal taken_up_;
  struct Command {
    explicit Command(const net::Executor& strand) : answered(strand) {}
    std::optional<Status> answer;
    net::AsyncSignal answered;
  };
  std::deque<std::shared_ptr<Command>> commands_;  // without an answer yet, as the machine has them
  bool stopping_ = false;
  std::optional<NextModel> next_;
  PaceReport pace_report_;
  TimePoint round_opened_;
  std::uint64_t bytes_in_before_ = 0;
  std::uint64_t bytes_out_before_ = 0;
};

}  // namespace fluvial::coordinator
