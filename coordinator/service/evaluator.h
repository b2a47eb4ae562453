// Workers that evaluate: they attach to the coordinator's worker socket and are given each committed model, the newest
// when they are free. A worker that trains is refused there, and told where it belongs.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "core/local/worker_server.h"
#include "core/net/task_group.h"
#include "core/round/plan.h"
#include "core/round/record.h"
#include "core/tree/runtime.h"

namespace fluvial::coordinator {

class Evaluator final : public local::WorkerHandler, public std::enable_shared_from_this<Evaluator> {
 public:
  using Done = std::function<void(RunId, RoundId, const round::Metrics&)>;
  // `less`: of a run less may be awaited than before, though not because of a result.
  Evaluator(tree::Runtime& runtime, net::TaskGroup& tasks, Done done, std::function<void()> less)
      : runtime_(runtime), tasks_(tasks), done_(std::move(done)), less_(std::move(less)) {}

  Status open(const std::string& socket);
  void close();

  // `plan`: of the run that the model is of; its name and [worker] table, as the round had it, go with the task.
  void committed(const round::ModelRef& ref, SharedBytes model, std::shared_ptr<const round::Schema> schema,
                 const round::Plan& plan);
  void run_active(local::ActiveRun active);  // workers wait for its end
  // The run is over. Workers are told once its last model has been evaluated.
  void run_ended(local::EndedRun ended);

  // Whether a result of this run is still to come: a worker has its model, or it is the next for one.
  bool awaits(RunId run) const;

  void worker_attached(local::WorkerId worker, const local::WorkerInfo& info) override;
  void worker_detached(local::WorkerId worker, const std::string& reason) override;
  void task_done(local::WorkerId worker, local::TaskResult result) override;
  void task_failed(local::WorkerId worker, local::TaskId task, const Error& error) override;
  void connection_refused(const std::string& reason) override;

 private:
  struct Waiting {
    round::ModelRef ref;
    SharedBytes model;
    std::shared_ptr<const round::Schema> schema;
    std::string run_name;
    round::WorkerConfig config;
  };
  void assign_next();
  void tell_ended();
  void freed();  // a worker is, or there is one less
  net::Awaitable<void> assign(local::WorkerId worker, Waiting what);

  tree::Runtime& runtime_;
  net::TaskGroup& tasks_;
  Done done_;
  std::function<void()> less_;
  std::unique_ptr<local::WorkerServer> server_;
  std::map<local::WorkerId, std::optional<round::ModelRef>> workers_;  // what each is busy with
  std::optional<Waiting> newest_;
  std::vector<local::EndedRun> ended_;  // not told yet
  std::uint64_t last_task_ = 0;
};

}  // namespace fluvial::coordinator
