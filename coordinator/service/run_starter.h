// Runs as they begin: a new one, and the one that the journal has not ended. What must be on the disk is there before
// the run is handed to whoever carries it out. On the node's strand.
#pragma once

#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "coordinator/logic/run_machine.h"
#include "coordinator/model/trained.h"
#include "coordinator/service/disk_health.h"
#include "core/aggregate/server_optimizer.h"
#include "core/net/signal.h"
#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "core/tree/model_slot.h"
#include "core/tree/overtaken_models.h"
#include "core/tree/runtime.h"
#include "core/wire/record_mapping.h"
#include "kernels/codec.h"

namespace fluvial::coordinator {

// An active run's parts that stay the same from round to round.
struct ActiveRun {
  RunMachine machine;
  std::shared_ptr<const round::Schema> schema;
  std::shared_ptr<const kernels::Codec> codec;
  aggregate::ServerOptimizer optimizer;
  std::shared_ptr<const std::vector<float>> optimizer_state;
  SharedBytes master;                     // the model that the server steps
  DownPlan down;                          // how another is made of it, which the sites train from
  std::shared_ptr<tree::ModelSlot> slot;  // that one
  std::vector<RunId> continues;           // the run before it, the one before that, ...
  std::optional<Digest> tree;             // its tree digest
  wire::Order order = {};                 // of the attempt that is open
  SharedBytes codec_state = {};         // that the next round begins with; empty: as before the first, or there is none
  std::vector<SharedBytes> means = {};  // of the passes of the open attempt that are over
  std::shared_ptr<tree::ModelSlot> vector = {};  // that the open pass begins with; null: none
  tree::OvertakenModels overtaken = {};          // with windows: those before it
};

// What a run that continues another begins with, beside the model: where its row says so.
struct States {
  std::vector<float> optimizer;
  SharedBytes codec = {};
};

// What a run begins as.
struct NewRun {
  store::RunRow row;
  Buffer model;
  States states = {};
};
using PrepareRun = std::function<Result<NewRun>()>;  // blocking: on the pool

// A trained model to be passed on.
std::shared_ptr<tree::ModelSlot> slot_of(const net::Executor& strand, const round::Schema& schema, TrainedModel model);

class RunStarter {
 public:
  using Activate = std::function<void(std::unique_ptr<ActiveRun>)>;

  // `active`: the run that has not ended.
  RunStarter(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models, DiskHealth& health,
             Epoch epoch, std::function<std::optional<RunId>()> active, Activate activate);

  // What is not paused goes on. Once, before any run is started.
  net::Awaitable<void> take_up();
  // One at a time; kFailedPrecondition while a run is active or is being started. No run commits while `prepare` is
  // called: the last round of the run that it continues stays the last.
  net::Awaitable<Result<RunId>> start(PrepareRun prepare);
  void stop();

 private:
  struct Latest {  // what a run begins with, or goes on from
    Master master;
    TrainedModel trained;
    std::vector<float> optimizer_state;
    std::optional<round::AttemptRecord> open;
    // As in RunStart.
    std::vector<round::ModelRef> earlier = {};
    std::vector<SiteId> late = {};
    round::Marks marks = {};
    int scale_bits = 0;
    round::Rates rates = {};
    std::optional<round::VectorRef> codec_state = {};
    SharedBytes state = {};
  };
  net::Awaitable<Status> take_up(store::RunRow row);
  Result<TrainedModel> load_trained(const store::RunRow& row, const store::CommitRow& last, const Master& master);
  Status know_late(const store::RunRow& row, const store::CommitRow& last, Latest& latest);
  Status know_rates(const store::RunRow& row, RoundId last, Latest& latest);
  Result<store::Model> load_before(const store::RunRow& row, RoundId round);
  Result<States> load_states(const store::RunRow& row, const std::optional<store::CommitRow>& last) const;
  net::Awaitable<Result<RunId>> make_run(NewRun begun);
  net::Awaitable<Status> activate(store::RunRow row, Latest latest);
  net::Awaitable<Status> give_up_start(RunId run, std::string reason);

  tree::Runtime& runtime_;
  store::CoordinatorJournal& journal_;
  store::ModelStore& models_;
  DiskHealth& health_;
  Epoch epoch_;
  std::function<std::optional<RunId>()> active_;
  Activate activate_;
  bool is_taken_up_ = false;  // what the journal has not ended
  bool is_starting_ = false;  // a run is being made
  bool stopping_ = false;
  net::AsyncSignal taken_up_;
};

}  // namespace fluvial::coordinator
