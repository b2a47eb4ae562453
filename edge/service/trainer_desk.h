// The site's workers and what they are asked: one job at a time, one task a process. Who counts as a worker, when a job
// begins and when it is over is edge/logic/crew. On the node's strand, as the worker server's handler too.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <set>
#include <string>
#include <vector>

#include "core/local/worker_server.h"
#include "core/net/timer.h"
#include "core/telemetry/log.h"
#include "edge/logic/crew.h"
#include "edge/service/trainers.h"

namespace fluvial::edge {

struct DeskOptions {
  std::size_t workers = 1;  // a job starts when this many training workers are free
  std::chrono::milliseconds attach_deadline{60'000};
  std::chrono::milliseconds task_deadline{3'600'000};  // a plan may ask for less
};

class TrainerDesk final : public local::WorkerHandler {
 public:
  // How it reaches the workers.
  struct Calls {
    std::function<void(local::WorkerId, local::Task)> assign;
    std::function<void(local::WorkerId, local::CommittedModel)> committed;
    // As Trainers::Events has them.
    std::function<void(RunId)> followed;
    std::function<void(std::size_t)> workers_changed;
    std::function<void(bool)> working_changed;
    std::function<void(RunId)> started;
    std::function<void(const TrainJob&, std::vector<TrainedPart>, const round::ByteRanges&)> ready;
  };

  TrainerDesk(const net::Executor& strand, DeskOptions options, telemetry::Logger log);

  void set_calls(Calls calls) { calls_ = std::move(calls); }

  // `done` once, later: with the results of those workers that the plan's workers.missing lets it go with, in the order
  // of their tasks. A task whose worker goes away is given to another that had none in this job. kDeadlineExceeded: too
  // few workers, or none answered in time; kUnavailable: one is missing, and the plan says decline; kInternal: what the
  // worker said; kInvalidArgument: ranks of a group that contradict each other; kPermissionDenied: more weight than the
  // site may have.
  void train(TrainJob job, Trainers::Done done);
  void run_ended(RunId run);  // its job, if it waits for workers, is over: kCancelled. Who works goes on
  void stop();                // no more calls of `done`
  std::size_t workers() const { return crew_.processes(); }
  std::string holders() const;

  // As Trainers has them.
  void committed(local::CommittedModel model);
  void none_committed() { newest_.reset(); }
  bool owes(RunId run, RoundId round) const;
  void let_go();  // of the device memory of workers

  WorkerOutcomes& outcomes() { return outcomes_; }

  void worker_attached(local::WorkerId worker, const local::WorkerInfo& info) override;
  void worker_detached(local::WorkerId worker, const std::string& reason) override;
  void task_ready(local::WorkerId worker, local::TaskReady ready) override;
  void task_done(local::WorkerId worker, local::TaskResult result) override;
  void task_failed(local::WorkerId worker, local::TaskId task, const Error& error) override;
  void connection_refused(const std::string& reason) override;

 private:
  struct RunRound {
    RunId run;
    RoundId round;
  };
  struct Worker {
    local::WorkerInfo info;
    std::optional<RunRound> task;  // given last, not answered
    std::optional<RunRound> owed;  // the model of this round, or of a later one
    // Of its last result, held open until it brings another: a worker uses one for a whole run, and to open and close
    // it with each round takes time.
    std::shared_ptr<const local::DeviceMemory> device;
  };
  // One process' part in a slot.
  struct Seat {
    local::WorkerId worker;
    std::string name;
    local::TaskId task;
    std::optional<local::TaskReady> ready;  // all that was announced
    std::optional<local::TaskResult> result;
  };
  struct JobSlot {
    std::vector<Seat> seats;  // by rank; none: open
    std::optional<Error> error;
    SlotState state() const;
  };
  struct Job {
    TrainJob what;
    Trainers::Done done;
    std::vector<JobSlot> slots;       // once started
    std::set<local::WorkerId> turns;  // who had a task in this job
    bool started = false;
    bool waited = false;  // long enough for more workers
    bool said_waiting = false;
  };
  struct Found {
    JobSlot* slot;
    Seat* seat;
  };
  std::optional<Found> find(local::TaskId task);
  std::vector<Unit> spare_units() const;  // free, and without a turn in this job
  bool answered(local::WorkerId worker);
  void note_working();
  void hold(local::WorkerId worker, const std::shared_ptr<const local::DeviceMemory>& device);
  void tell(local::WorkerId id, Worker& worker);
  void pump();
  void give(JobSlot& slot, const Unit& unit);
  local::Task task_for(const Worker& worker);
  void announce();
  void settle();
  void finish(Ruling ruling);
  void arm(std::chrono::milliseconds deadline) {
    deadline_.after(deadline, [this] { on_deadline(); });
  }
  void on_deadline();
  std::chrono::milliseconds task_deadline() const;
  telemetry::Logger log_of(const Job& job) const;

  DeskOptions options_;
  telemetry::Logger log_;
  Calls calls_;
  std::map<local::WorkerId, Worker> workers_;
  Crew crew_;
  bool working_ = false;
  WorkerOutcomes outcomes_;
  std::optional<local::CommittedModel> newest_;
  std::optional<Job> job_;
  local::TaskId last_task_;
  net::Timer deadline_;
};

}  // namespace fluvial::edge
