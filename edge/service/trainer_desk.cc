#include "edge/service/trainer_desk.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "edge/service/trained_parts.h"

namespace fluvial::edge {
namespace {

MemberId member(local::WorkerId worker) { return MemberId(worker.value()); }
local::WorkerId worker_of(MemberId member) { return local::WorkerId(member.value()); }

std::optional<local::Previous> previous_of(const std::optional<LastResult>& last) {
  if (!last) return {};
  using enum local::ResultOutcome;
  if (!last->outcome) return local::Previous{last->round, kUnused};
  switch (*last->outcome) {
    case Outcome::kPending: return local::Previous{last->round, kPending};
    case Outcome::kCounted: return local::Previous{last->round, kCounted};
    case Outcome::kLate: return local::Previous{last->round, kLate};
    case Outcome::kRefused: return local::Previous{last->round, kRefused};
  }
  return {};
}

}  // namespace

TrainerDesk::TrainerDesk(const net::Executor& strand, DeskOptions options, telemetry::Logger log)
    : options_(options), log_(std::move(log)), crew_(options.workers), deadline_(strand) {}

telemetry::Logger TrainerDesk::log_of(const Job& job) const {
  return log_.with({{"run", job.what.run}, {"round", job.what.round}});
}

void TrainerDesk::train(TrainJob job, Trainers::Done done) {
  FLUVIAL_CHECK(!job_, "one job at a time");
  job_ = Job{.what = std::move(job), .done = std::move(done)};
  arm(options_.attach_deadline);
  pump();
}

void TrainerDesk::run_ended(RunId run) {
  if (!job_ || job_->what.run != run) return;
  const bool waits =
      std::ranges::all_of(job_->slots, [](const JobSlot& slot) { return slot.state() == SlotState::kOpen; });
  if (!waits) return;
  job_->slots.resize(1);
  job_->slots.front().error = Error{Code::kCancelled, "its run is over"};
  finish(Ruling::kFail);
}

void TrainerDesk::stop() {
  job_.reset();
  deadline_.cancel();
}

// ---- workers ---------------------------------------------------------------------------------------------------

void TrainerDesk::worker_attached(local::WorkerId worker, const local::WorkerInfo& info) {
  telemetry::Logger log = log_;
  if (info.group) log = log.with({{"group", info.group->name}, {"rank", info.group->rank}});
  log.info("worker attached",
           {{"worker", info.name}, {"kind", local::task_kind_name(info.kind)}, {"worker_pid", info.pid}});
  workers_[worker] = Worker{.info = info};
  for (const RunId run : info.follows) {
    if (calls_.followed) calls_.followed(run);
  }
  if (info.kind != local::TaskKind::kTrain) return;
  CrewMember joined{.name = info.name};
  if (info.group) joined = {info.name, info.group->name, info.group->rank, info.group->ranks};
  crew_.attached(member(worker), std::move(joined));
  if (calls_.workers_changed) calls_.workers_changed(workers());
  pump();
}

void TrainerDesk::worker_detached(local::WorkerId worker, const std::string& reason) {
  const auto found = workers_.extract(worker);
  log_.info("worker detached", {{"worker", found.empty() ? "" : found.mapped().info.name}, {"reason", reason}});
  crew_.detached(member(worker));
  note_working();
  if (calls_.workers_changed) calls_.workers_changed(workers());
  if (job_) pump();  // who is left may be all that is waited for
}

void TrainerDesk::connection_refused(const std::string& reason) {
  log_.warn("worker connection refused; it may try again", {{"reason", reason}});
}

// Its task has an outcome. False: it is gone.
bool TrainerDesk::answered(local::WorkerId worker) {
  crew_.answered(member(worker));
  const auto found = workers_.find(worker);
  if (found == workers_.end()) return false;
  Worker& who = found->second;
  if (who.info.wants_models && who.task) who.owed = who.task;
  who.task.reset();
  note_working();
  tell(worker, who);
  return true;
}

void TrainerDesk::note_working() {
  const bool working = std::ranges::any_of(workers_, [](const auto& entry) { return entry.second.task.has_value(); });
  if (std::exchange(working_, working) != working && calls_.working_changed) calls_.working_changed(working);
}

void TrainerDesk::hold(local::WorkerId worker, const std::shared_ptr<const local::DeviceMemory>& device) {
  if (const auto who = workers_.find(worker); who != workers_.end()) who->second.device = device;
}

void TrainerDesk::let_go() {
  for (auto& [id, worker] : workers_) worker.device.reset();
}

std::string TrainerDesk::holders() const {
  constexpr std::size_t kNamed = 3;
  std::vector<std::string> named;
  std::size_t more = 0;
  for (const auto& [id, worker] : workers_) {
    if (!worker.task) continue;
    if (named.size() == kNamed) {
      ++more;
    } else {
      named.push_back(fmt::format("{} (process {})", worker.info.name, worker.info.pid));
    }
  }
  if (named.empty()) return "";
  return fmt::format("at worker {}{}", fmt::join(named, ", "), more > 0 ? fmt::format(" and {} more", more) : "");
}

// ---- committed models ------------------------------------------------------------------------------------------

void TrainerDesk::tell(local::WorkerId id, Worker& worker) {
  if (!newest_ || !worker.owed || worker.owed->run != newest_->run || worker.owed->round > newest_->round) return;
  worker.owed.reset();
  calls_.committed(id, *newest_);
}

void TrainerDesk::committed(local::CommittedModel model) {
  newest_ = std::move(model);
  for (auto& [id, worker] : workers_) tell(id, worker);
}

bool TrainerDesk::owes(RunId run, RoundId round) const {
  return std::ranges::any_of(workers_, [&](const auto& entry) {
    const std::optional<RunRound>& owed = entry.second.owed;
    return owed && owed->run == run && owed->round <= round;
  });
}

// ---- the job ---------------------------------------------------------------------------------------------------

SlotState TrainerDesk::JobSlot::state() const {
  if (error) return SlotState::kFailed;
  if (seats.empty()) return SlotState::kOpen;
  const bool done = std::ranges::all_of(seats, [](const Seat& seat) { return seat.result.has_value(); });
  return done ? SlotState::kDone : SlotState::kWorking;
}

std::optional<TrainerDesk::Found> TrainerDesk::find(local::TaskId task) {
  if (!job_) return {};
  for (JobSlot& slot : job_->slots) {
    const auto seat = std::ranges::find(slot.seats, task, &Seat::task);
    if (seat != slot.seats.end()) return Found{&slot, &*seat};
  }
  return {};
}

std::vector<Unit> TrainerDesk::spare_units() const {
  std::vector<Unit> spare = crew_.free_units();
  std::erase_if(spare, [this](const Unit& unit) {
    return std::ranges::any_of(unit.members, [this](MemberId id) { return job_->turns.contains(worker_of(id)); });
  });
  return spare;
}

void TrainerDesk::pump() {
  if (!job_) return;
  const std::vector<Unit> spare = spare_units();
  if (!job_->started) {
    if (!crew_.may_start(job_->what.plan.workers_missing, job_->waited)) {
      if (!std::exchange(job_->said_waiting, true)) {
        log_of(*job_).info("waiting for training workers", {{"free", spare.size()}, {"expected", options_.workers}});
      }
      return;
    }
    job_->started = true;
    if (calls_.started) calls_.started(job_->what.run);
    job_->slots.resize(std::min(spare.size(), options_.workers));
    if (job_->slots.size() < options_.workers) {
      crew_.went_short();
      log_of(*job_).warn("fewer workers than expected; the round begins with these",
                         {{"workers", job_->slots.size()}, {"expected", options_.workers}});
    }
    arm(task_deadline());
  }
  auto next = spare.begin();
  for (JobSlot& slot : job_->slots) {
    if (slot.state() == SlotState::kOpen && next != spare.end()) give(slot, *next++);
  }
}

local::Task TrainerDesk::task_for(const Worker& worker) {
  const TrainJob& what = job_->what;
  last_task_ = last_task_.next();
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
  task.optimizer = round::optimizer_name(what.plan.optimizer.kind);
  task.weight_max = what.weight_max;
  task.config = what.plan.worker.values;  // an opening has no schedules
  task.previous = previous_of(outcomes_.of(what.run, worker.info.name));
  return task;
}

void TrainerDesk::give(JobSlot& slot, const Unit& unit) {
  for (const MemberId id : unit.members) {
    const local::WorkerId to = worker_of(id);
    Worker& worker = workers_.at(to);
    local::Task task = task_for(worker);
    worker.task = RunRound{job_->what.run, job_->what.round};
    crew_.took(id);
    job_->turns.insert(to);
    slot.seats.push_back({.worker = to, .name = worker.info.name, .task = task.id});
    calls_.assign(to, std::move(task));
  }
  note_working();
}

void TrainerDesk::task_ready(local::WorkerId worker, local::TaskReady ready) {
  hold(worker, ready.device);
  const std::optional<Found> found = find(ready.id);
  if (!found) return;
  if (found->seat->ready) {
    found->seat->ready->ranges.join(ready.ranges);
  } else {
    found->seat->ready = std::move(ready);
  }
  announce();
}

// What all workers have in place can be reduced while they compute the rest.
void TrainerDesk::announce() {
  if (!job_ || !job_->what.base.schema.all_averaged() || !calls_.ready) return;
  const std::uint64_t bytes = job_->what.base.schema.model_bytes();
  round::ByteRanges common = round::ByteRanges::whole(bytes);
  std::vector<TrainedPart> parts;
  bool has_early = false;
  for (const JobSlot& slot : job_->slots) {
    if (slot.state() == SlotState::kFailed) continue;
    TrainedPart part;
    round::ByteRanges in_place;
    for (const Seat& seat : slot.seats) {
      if (!seat.result && !seat.ready) return;
      has_early = has_early || seat.ready;
      const std::uint64_t weight = seat.result ? seat.result->weight : seat.ready->weight;
      if (weight >= round::kWeightLimit) return;  // the job will say so
      part.weight = static_cast<std::uint32_t>(weight);
      part.update = seat.result ? seat.result->update : seat.ready->update;
      const round::ByteRanges& ranges = seat.result ? seat.result->ranges : seat.ready->ranges;
      if (ranges.ranges().size() > local::kEarlyRangesMax) return;  // each announcement would cost that much again
      in_place.join(ranges);
      part.shards.push_back({seat.name, seat.result ? seat.result->model : seat.ready->model, ranges,
                             seat.result ? seat.result->device : seat.ready->device});
    }
    common.keep(in_place);
    parts.push_back(std::move(part));
  }
  const bool one_kind = std::ranges::all_of(parts, [&](const TrainedPart& p) { return p.update == parts[0].update; });
  if (has_early && parts.size() > 1 && one_kind && !common.empty()) {
    calls_.ready(job_->what, std::move(parts), common);
  }
}

void TrainerDesk::task_done(local::WorkerId worker, local::TaskResult result) {
  if (const auto who = workers_.find(worker); who != workers_.end() && who->second.task) {
    outcomes_.answered(who->second.task->run, who->second.task->round, who->second.info.name);
  }
  hold(worker, result.device);
  answered(worker);
  if (const std::optional<Found> found = find(result.id)) {  // otherwise an answer that nobody waits for any more
    found->seat->result = std::move(result);
    if (found->slot->state() == SlotState::kDone) {
      UnitAnswers answers;
      for (const Seat& seat : found->slot->seats) answers.push_back({seat.name, *seat.result});
      const Status fits = check_unit(answers, job_->what.base.schema.model_bytes());
      if (!fits.ok()) {
        log_of(*job_).warn("a group's results do not fit together; they count as missing",
                           {{"reason", fits.error().message}});
        found->slot->error = fits.error();
      }
    }
    announce();
  }
  pump();
  settle();
}

void TrainerDesk::task_failed(local::WorkerId worker, local::TaskId task, const Error& error) {
  const bool gone = error.code == Code::kUnavailable || error.code == Code::kNotFound;
  const auto who = workers_.find(worker);
  const std::string name = who == workers_.end() ? "" : who->second.info.name;
  if (!gone) answered(worker);  // who is gone stays busy until it is detached, so that nothing is given to it
  if (const std::optional<Found> found = find(task)) {
    log_of(*job_).warn(
        gone ? "worker went away; another takes its task, if one comes" : "worker failed; its result counts as missing",
        {{"worker", name}, {"reason", error.message}});
    if (gone) {
      // What other ranks of its group still bring is passed over; the group may have its turn again.
      for (const Seat& seat : found->slot->seats) job_->turns.erase(seat.worker);
      found->slot->seats.clear();
    } else {
      found->slot->error = error;
    }
  }
  pump();
  settle();
}

void TrainerDesk::settle() {
  if (!job_ || !job_->started) return;
  std::vector<SlotState> states;
  for (const JobSlot& slot : job_->slots) states.push_back(slot.state());
  const Ruling ruling = judge(states, job_->what.plan.workers_missing, !spare_units().empty());
  if (ruling != Ruling::kWait) finish(ruling);
}

void TrainerDesk::finish(Ruling ruling) {
  Job job = *std::exchange(job_, std::nullopt);
  deadline_.cancel();
  crew_.gave_up();
  std::vector<UnitAnswers> units;
  std::optional<Error> error;
  for (JobSlot& slot : job.slots) {
    if (slot.state() == SlotState::kDone) {
      UnitAnswers& answers = units.emplace_back();
      for (Seat& seat : slot.seats) answers.push_back({std::move(seat.name), std::move(*seat.result)});
    } else if (!error) {
      error = slot.error;
    }
  }
  if (ruling == Ruling::kFail) {
    return job.done(error.value_or(Error{Code::kUnavailable, "a worker went away, and no other is free"}));
  }
  if (units.size() < job.slots.size()) {
    crew_.went_short();
    log_of(job).warn("some workers have no result; the update is made without them", {{"workers", units.size()}});
  }
  job.done(join_parts(std::move(job.what.base), std::move(units), job.what.weight_max));
}

// ---- deadlines -------------------------------------------------------------------------------------------------

std::chrono::milliseconds TrainerDesk::task_deadline() const {
  const std::chrono::milliseconds asked = job_->what.plan.workers_deadline;
  return asked.count() > 0 ? std::min(asked, options_.task_deadline) : options_.task_deadline;
}

void TrainerDesk::on_deadline() {
  if (!job_->started) {
    job_->waited = true;
    pump();
    if (job_->started) return;
    job_->slots.resize(1);
    job_->slots.front().error =
        Error{Code::kDeadlineExceeded,
              fmt::format("{} of {} training workers attached and free within worker_attach_deadline_ms ({} ms)",
                          crew_.free_units().size(), options_.workers, options_.attach_deadline.count())};
    return finish(Ruling::kFail);
  }
  const bool plans = job_->what.plan.workers_deadline.count() > 0 && task_deadline() < options_.task_deadline;
  const Error late{
      Code::kDeadlineExceeded,
      fmt::format("no answer within {} ({} ms)", plans ? "the plan's workers.deadline_ms" : "worker_task_deadline_ms",
                  task_deadline().count())};
  for (JobSlot& slot : job_->slots) {
    if (const SlotState state = slot.state(); state == SlotState::kOpen || state == SlotState::kWorking)
      slot.error = late;
  }
  settle();
}

}  // namespace fluvial::edge
