// The workers that attach to this machine's socket: the desk that gives them tasks, and their server.
#pragma once

#include <memory>
#include <string>
#include <utility>

#include "core/config/settings.h"
#include "core/local/worker_server.h"
#include "core/tree/runtime.h"
#include "edge/service/gpus.h"
#include "edge/service/trainer_desk.h"
#include "edge/service/trainers.h"

namespace fluvial::edge {

class LocalWorkers final : public Trainers {
 public:
  // `node`: the agent's name, told to workers. Without GPUs (null) none are offered to workers.
  LocalWorkers(tree::Runtime& runtime, const config::EdgeSettings& settings, std::string node,
               std::shared_ptr<SiteGpus> gpus);

  Status open(Events events) override;
  void stop() override;
  void train(TrainJob job, Done done) override { desk_.train(std::move(job), std::move(done)); }
  void committed(local::CommittedModel model) override { desk_.committed(std::move(model)); }
  void none_committed() override { desk_.none_committed(); }
  bool owes(RunId run, RoundId round) const override { return desk_.owes(run, round); }
  void let_go() override { desk_.let_go(); }
  void run_active(local::ActiveRun active) override { server_->run_active(std::move(active)); }
  void run_ended(local::EndedRun ended) override {
    desk_.run_ended(ended.run);
    server_->run_ended(std::move(ended));
  }
  void update_refused(local::RefusedUpdate refused) override { server_->update_refused(std::move(refused)); }
  WorkerOutcomes& outcomes() override { return desk_.outcomes(); }
  std::size_t workers() const override { return desk_.workers(); }
  std::string holders() const override { return desk_.holders(); }

 private:
  local::WorkerServerOptions server_options(std::function<void()> unreadable) const;

  tree::Runtime& runtime_;
  std::string socket_;
  std::string node_;
  std::shared_ptr<SiteGpus> gpus_;  // null: none
  TrainerDesk desk_;
  std::unique_ptr<local::WorkerServer> server_;  // from open() on
};

}  // namespace fluvial::edge
