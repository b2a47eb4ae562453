#include "edge/service/trainer_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <tuple>
#include <utility>

#include "edge/service/trained_parts.h"

namespace fluvial::edge {

TrainerDesk::TrainerDesk(const net::Executor& strand, DeskOptions options, telemetry::Logger log)
    : options_(options), log_(std::move(log)), deadline_(strand) {}

std::size_t TrainerDesk::workers() const {
  return static_cast<std::size_t>(std::ranges::count_if(
      workers_, [](const auto& entry) { return entry.second.info.kind == local::TaskKind::kTrain; }));
}

void TrainerDesk::notify_changed() {
  if (changed_) changed_(workers());
}

telemetry::Logger TrainerDesk::log_of(const Job& job) const {
  return log_.with({{"run", job.what.run}, {"round", job.what.round}});
}

void TrainerDesk::train(TrainJob job, Done done) {
  FLUVIAL_CHECK(!job_, "one job at a time");
  job_ = Job{std::move(job), std::move(done), std::vector<Slot>(options_.workers)};
  arm(options_.attach_deadline);
  pump();
}

void TrainerDesk::stop() {
  job_.reset();
  ++armed_;
  deadline_.cancel();
}

// ---- workers ---------------------------------------------------------------------------------------------------

void TrainerDesk::worker_attached(local::WorkerId worker, const local::WorkerInfo& info) {
  log_.info("worker attached",
            {{"worker", info.name}, {"kind", local::task_kind_name(info.kind)}, {"worker_pid", info.pid}});
  workers_[worker] = Worker{info};
  notify_changed();
  pump();
}

void TrainerDesk::worker_detached(local::WorkerId worker, const std::string& reason) {
  const auto found = workers_.extract(worker);
  log_.info("worker detached", {{"worker", found.empty() ? "" : found.mapped().info.name}, {"reason", reason}});
  notify_changed();
}

void TrainerDesk::connection_refused(const std::string& reason) {
  log_.warn("worker connection refused", {{"reason", reason}});
}

std::vector<local::WorkerId> TrainerDesk::free_workers() const {
  std::vector<std::tuple<std::string, local::WorkerId>> named;
  for (const auto& [id, worker] : workers_) {
    if (worker.info.kind == local::TaskKind::kTrain && !worker.busy) named.emplace_back(worker.info.name, id);
  }
  std::ranges::sort(named);
  std::vector<local::WorkerId> free;
  for (const auto& [name, id] : named) free.push_back(id);
  return free;
}

// ---- the job ---------------------------------------------------------------------------------------------------

TrainerDesk::Slot* TrainerDesk::slot_of(local::TaskId task) {
  if (!job_) return nullptr;
  const auto found = std::ranges::find_if(job_->slots, [&](const Slot& slot) { return slot.task == task; });
  return found == job_->slots.end() ? nullptr : &*found;
}

void TrainerDesk::pump() {
  if (!job_) return;
  const std::vector<local::WorkerId> free = free_workers();
  if (!job_->started) {
    if (free.size() < options_.workers) {
      if (!std::exchange(job_->said_waiting, true)) {
        log_of(*job_).info("waiting for training workers", {{"free", free.size()}, {"expected", options_.workers}});
      }
      return;
    }
    job_->started = true;
    arm(options_.task_deadline);
  }
  auto next = free.begin();
  for (Slot& slot : job_->slots) {
    if (slot.task || slot.settled() || next == free.end()) continue;
    give(slot, *next++);
  }
}

void TrainerDesk::give(Slot& slot, local::WorkerId worker) {
  const TrainJob& what = job_->what;
  last_task_ = last_task_.next();
  slot.task = last_task_;
  workers_.at(worker).busy = true;
  local::Task task;
  task.id = last_task_;
  task.kind = local::TaskKind::kTrain;
  task.run = what.run;
  task.run_name = what.plan.name;
  task.round = what.round;
  task.version = what.base.ref.version;
  task.schema = what.base.schema;
  task.model = what.base.bytes;
  task.local_steps = what.plan.local_steps;
  task.parameters = what.plan.worker;
  assign_(worker, std::move(task));
}

void TrainerDesk::task_done(local::WorkerId worker, local::TaskResult result) {
  if (const auto found = workers_.find(worker); found != workers_.end()) found->second.busy = false;
  if (Slot* slot = slot_of(result.id)) {  // otherwise an answer to what nobody waits for any more
    slot->result = std::move(result);
    settle();
  }
  pump();
}

void TrainerDesk::task_failed(local::WorkerId worker, local::TaskId task, const Error& error) {
  const bool gone = error.code == Code::kUnavailable || error.code == Code::kNotFound;
  // Who is gone stays busy until it is detached, so that nothing is given to it.
  if (const auto found = workers_.find(worker); found != workers_.end()) found->second.busy = gone;
  if (Slot* slot = slot_of(task)) {
    const auto name = workers_.find(worker);
    log_of(*job_).warn(gone ? "worker went away; its task waits for another" : "worker failed",
                       {{"worker", name == workers_.end() ? "" : name->second.info.name}, {"reason", error.message}});
    slot->task.reset();
    if (!gone) slot->error = error;
    settle();
  }
  pump();
}

void TrainerDesk::settle() {
  if (!std::ranges::all_of(job_->slots, &Slot::settled)) return;
  Job job = *std::exchange(job_, std::nullopt);
  ++armed_;
  deadline_.cancel();
  std::vector<local::TaskResult> results;
  std::optional<Error> error;
  for (Slot& slot : job.slots) {
    if (slot.result) {
      results.push_back(std::move(*slot.result));
    } else if (!error) {
      error = slot.error;
    }
  }
  if (results.empty()) return job.done(*error);
  if (error) log_of(job).warn("going on with fewer workers", {{"workers", results.size()}});
  job.done(join_parts(std::move(job.what.base), std::move(results)));
}

// ---- deadlines -------------------------------------------------------------------------------------------------

void TrainerDesk::arm(std::chrono::milliseconds deadline) {
  const std::uint64_t armed = ++armed_;
  deadline_.expires_after(deadline);
  deadline_.async_wait([this, armed](const boost::system::error_code& error) {
    if (!error && armed == armed_) on_deadline();
  });
}

void TrainerDesk::on_deadline() {
  const Error late =
      job_->started
          ? Error{Code::kDeadlineExceeded,
                  fmt::format("no answer within worker_task_deadline_ms ({} ms)", options_.task_deadline.count())}
          : Error{Code::kDeadlineExceeded,
                  fmt::format("{} of {} training workers attached and free within worker_attach_deadline_ms ({} ms)",
                              free_workers().size(), options_.workers, options_.attach_deadline.count())};
  for (Slot& slot : job_->slots) {
    if (!slot.settled()) slot.error = late;
  }
  settle();
}

}  // namespace fluvial::edge
