// What trains at a site, as its service sees it: workers on this machine (local_workers.h), or what stands in for them
// in a simulation. On the node's strand.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <string>
#include <vector>

#include "core/local/task.h"
#include "core/round/plan.h"
#include "edge/logic/worker_outcomes.h"
#include "edge/service/trained.h"

namespace fluvial::edge {

struct TrainJob {
  RunId run;
  RoundId round;
  round::Plan plan;
  HeldModel base;
  std::uint64_t weight_max = 0;  // of the site, in the round's record; 0: not told
};

class Trainers {
 public:
  using Done = std::function<void(Result<Trained>)>;
  struct Events {
    std::function<void(std::size_t)> workers_changed;
    std::function<void(RunId)> followed;        // who attaches waits for its end since before
    std::function<void(bool)> working_changed;  // whether any of them has a task that it has not answered
    std::function<void(RunId)> started;         // tasks of the job at hand are out
    // All workers of the job at hand have these bytes of their results in place; more may follow.
    std::function<void(const TrainJob&, std::vector<TrainedPart>, const round::ByteRanges&)> ready;
    std::function<void()> unreadable;  // a result in a GPU's memory could not be opened
  };

  virtual ~Trainers() = default;
  virtual Status open(Events events) = 0;
  virtual void stop() = 0;  // no more calls of `done`

  // One job at a time. `done` once, later; what errors it may have stands with TrainerDesk::train().
  virtual void train(TrainJob job, Done done) = 0;

  // A round was committed and its model is here: who wants models and answered a task of it, or of a round before, is
  // told; later answers too, until another model is committed or none is.
  virtual void committed(local::CommittedModel model) = 0;
  virtual void none_committed() = 0;
  virtual bool owes(RunId run,
                    RoundId round) const = 0;  // somebody waits for the model of that round, or of one before
  virtual void let_go() = 0;                   // of results that are kept open from task to task
  virtual void run_active(local::ActiveRun active) = 0;
  virtual void run_ended(local::EndedRun ended) = 0;              // a job of it that waits for workers ends
  virtual void update_refused(local::RefusedUpdate refused) = 0;  // what was trained counts nowhere

  virtual WorkerOutcomes& outcomes() = 0;  // what workers are told of their last results
  virtual std::size_t workers() const = 0;
  virtual std::string holders() const = 0;  // who has a task, for people; empty: nobody
};

}  // namespace fluvial::edge
