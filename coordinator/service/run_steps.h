// The steps of a run (RunMachine's Step), each with its work on the disk: an attempt, the next model, a commit and a
// status are on record before the machine hears that the step is done. On the node's strand; the disk on the pool.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>

#include "coordinator/logic/traces.h"
#include "coordinator/model/finalise.h"
#include "coordinator/service/authorship.h"
#include "coordinator/service/disk_health.h"
#include "coordinator/service/model_keeper.h"
#include "coordinator/service/order_signer.h"
#include "coordinator/service/roll_call.h"
#include "coordinator/service/run_host.h"
#include "coordinator/service/run_members.h"
#include "coordinator/service/run_observer.h"
#include "core/net/task_group.h"
#include "core/tree/hub.h"
#include "core/tree/parent_side.h"

namespace fluvial::coordinator {

class RunSteps {
 public:
  using ModelCommitted = std::function<void(const round::ModelRef&, SharedBytes, std::shared_ptr<const round::Schema>)>;

  struct Keeps {
    store::CoordinatorJournal& journal;
    store::ModelStore& models;
    const OrderSigner& signer;
    const Authorship& authorship;
  };
  RunSteps(tree::Runtime& runtime, net::TaskGroup& tasks, const Keeps& keeps, RunObserver& observer, tree::Hub& hub,
           tree::ParentSide& side, RunMembers& members, const RollCall& roll_call, RunHost& host);

  void on_commit(ModelCommitted hook) { model_committed_ = std::move(hook); }  // told of each committed model
  DiskHealth& health() { return health_; }
  const DiskHealth& health() const { return health_; }
  const Traces& traces() const { return traces_; }
  ModelKeeper& keeper() { return keeper_; }
  void told(const round::NodeReport& report) { traces_.told(report); }  // of a member

  void begin(const RecordAttempt& effect);
  void begin(const Reduce& effect);    // on the sum's lane
  void begin(const Finalise& effect);  // likewise
  void begin(const RecordCommit& effect);
  void begin(const RecordStatus& effect);
  void publish(const Publish& effect);
  v1::Envelope state() const;  // of the run, as children are told it
  void rest();                 // the run has ended or pauses: what is finalised and not committed is given up
  std::shared_ptr<tree::ModelSlot> ahead(const round::ModelRef& ref) const;  // null: none comes that is called so

 private:
  net::Awaitable<void> record_attempt(RecordAttempt effect);
  wire::Opening opening_of(const round::AttemptRecord& record, const std::optional<round::Pass>& pass) const;
  transfer::SumShape shape_of(const round::AttemptRecord& record, const std::optional<round::Pass>& pass) const;
  net::Awaitable<void> do_reduce(Reduce effect);
  void give_vector(const round::Pass& pass, const round::ModelRef& base);
  std::optional<PassesInput> passes_of(const round::CommitRecord& record) const;
  net::Awaitable<void> do_finalise(Finalise effect);
  void made(Step step, TrainedModel unnamed);  // and not yet named, nor durable
  void give_up_ahead();
  std::shared_ptr<tree::ModelSlot> slot_of_next(const round::Schema& schema);
  net::Awaitable<void> record_commit(RecordCommit effect);
  net::Awaitable<void> record_status(RecordStatus effect);
  net::Awaitable<void> prune(round::Plan plan, round::ModelRef model, round::Metrics metrics);
  void note_round(const round::CommitRecord& record);
  store::CommitRow row_of(const round::CommitRecord& record) const;
  void step_failed(Step step, DiskPart part, Error error);
  bool is_due(Step step);
  RunMachine& machine() { return host_.current()->machine; }
  const RunMachine& machine() const { return host_.current()->machine; }
  TimePoint now() const { return runtime_.clock.now(); }

  struct SignedCommit {
    wire::Order order;
    std::map<SiteId, wire::Order> outcomes;
  };
  struct Since {
    TimePoint at;
    std::uint64_t bytes_in = 0;
    std::uint64_t bytes_out = 0;
    WallTime wall;
  };
  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  store::CoordinatorJournal& journal_;
  store::ModelStore& models_;
  ModelKeeper keeper_;
  const OrderSigner& signer_;
  const Authorship& authorship_;
  RunObserver& observer_;
  tree::Hub& hub_;
  tree::ParentSide& side_;
  RunMembers& members_;
  const RollCall& roll_call_;
  RunHost& host_;
  DiskHealth health_;
  ModelCommitted model_committed_;
  std::optional<NextModel> next_;
  std::shared_ptr<tree::ModelSlot> ahead_;    // of what will be committed, as it is passed on; null: nothing
  TimePoint sealed_at_;                       // the sum of the round that is being committed
  std::vector<store::LateSite> late_;         // of the round that is being finalised
  SignedCommit commit_;                       // the last
  Digest committed_master_{};                 // of the last commit
  std::optional<Since> since_;                // when the round began that this process opened last
  std::optional<std::uint64_t> down_before_;  // bytes, when the model was made that the next round begins with
  TimePoint committed_at_;
  Traces traces_;
};

}  // namespace fluvial::coordinator
