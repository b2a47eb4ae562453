// The site's workers and what they are asked: one job at a time, one task a worker. On the node's strand, as the worker
// server's handler too.
#pragma once

#include <boost/asio/steady_timer.hpp>
#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "core/local/worker_server.h"
#include "core/net/awaitable.h"
#include "core/round/plan.h"
#include "core/telemetry/log.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

struct TrainJob {
  RunId run;
  RoundId round;
  round::Plan plan;
  HeldModel base;
};

struct DeskOptions {
  std::size_t workers = 1;  // a job starts when so many training workers are free
  std::chrono::milliseconds attach_deadline{60'000};
  std::chrono::milliseconds task_deadline{3'600'000};
};

class TrainerDesk final : public local::WorkerHandler {
 public:
  using Assign = std::function<void(local::WorkerId, local::Task)>;
  using Done = std::function<void(Result<Trained>)>;

  TrainerDesk(const net::Executor& strand, DeskOptions options, telemetry::Logger log);

  void set_assign(Assign assign) { assign_ = std::move(assign); }
  void set_workers_changed(std::function<void(std::size_t)> changed) { changed_ = std::move(changed); }

  // `done` once, later: with the results of those workers that succeeded, in the order of their tasks. A task whose
  // worker goes away is given to another. kDeadlineExceeded: too few workers, or none answered in time; kInternal: what
  // the worker said; kInvalidArgument: weights that no update may have.
  void train(TrainJob job, Done done);
  void stop();  // no more calls of `done`
  std::size_t workers() const;

  void worker_attached(local::WorkerId worker, const local::WorkerInfo& info) override;
  void worker_detached(local::WorkerId worker, const std::string& reason) override;
  void task_done(local::WorkerId worker, local::TaskResult result) override;
  void task_failed(local::WorkerId worker, local::TaskId task, const Error& error) override;
  void connection_refused(const std::string& reason) override;

 private:
  struct Worker {
    local::WorkerInfo info;
    bool busy = false;
  };
  struct Slot {
    std::optional<local::TaskId> task;  // assigned
    std::optional<local::TaskResult> result;
    std::optional<Error> error;
    bool settled() const { return result || error; }
  };
  struct Job {
    TrainJob what;
    Done done;
    std::vector<Slot> slots;
    bool started = false;
    bool said_waiting = false;
  };
  std::vector<local::WorkerId> free_workers() const;  // by name
  Slot* slot_of(local::TaskId task);
  void pump();
  void give(Slot& slot, local::WorkerId worker);
  void settle();
  void arm(std::chrono::milliseconds deadline);
  void on_deadline();
  void notify_changed();
  telemetry::Logger log_of(const Job& job) const;

  DeskOptions options_;
  telemetry::Logger log_;
  Assign assign_;
  std::function<void(std::size_t)> changed_;
  std::map<local::WorkerId, Worker> workers_;
  std::optional<Job> job_;
  local::TaskId last_task_;
  boost::asio::steady_timer deadline_;
  std::uint64_t armed_ = 0;  // which wait counts
};

}  // namespace fluvial::edge
