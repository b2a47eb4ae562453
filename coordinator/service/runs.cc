// Runs: taken up from the journal, started, paused, resumed, stopped, and what they are recorded and then told.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "coordinator/service/json.h"
#include "coordinator/service/run_service.h"
#include "coordinator/service/run_status.h"
#include "core/wire/record_mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr std::string_view kStarting = "starting";  // the reason of a run whose model is not on the disk yet

Error not_active(RunId run) {
  return {Code::kFailedPrecondition,
          "run " + std::to_string(run.value()) + " is not the active one; see: fluvial run list"};
}

}  // namespace

// ---- taken up and started -----------------------------------------------------------------------------------------

// One run at most has not ended, the newest; beside it there may be some whose start was cut off, and never were.
net::Awaitable<void> RunService::take_up() {
  Result<std::vector<store::RunRow>> rows = co_await runtime_.pool.run([this] { return journal_.runs(); });
  if (!rows.ok()) {
    runtime_.log.error("the journal's runs could not be read", {{"reason", rows.error().to_string()}});
    rows = std::vector<store::RunRow>{};
  }
  for (auto row = rows->rbegin(); row != rows->rend(); ++row) {
    const bool is_paused = row->status == store::RunStatus::kPaused;
    if (!is_paused && row->status != store::RunStatus::kRunning) continue;
    Status taken;
    if (is_paused && row->reason == kStarting) {
      taken = co_await give_up_start(row->id, "its start was cut off");
    } else if (!is_active()) {
      taken = co_await take_up(*row);
    }
    if (taken.ok()) continue;
    runtime_.log.error("run could not be taken up", {{"run", row->id}, {"reason", taken.error().to_string()}});
  }
  is_taken_up_ = true;
  taken_up_.notify_all();
}

net::Awaitable<Status> RunService::take_up(store::RunRow row) {
  const auto loaded = [&]() -> Result<std::optional<store::CommitRow>> { return journal_.last_commit(row.id); };
  Result<std::optional<store::CommitRow>> last = co_await runtime_.pool.run(loaded);
  if (!last.ok()) co_return last.error();
  const Result<std::optional<store::AttemptRow>> attempt =
      co_await runtime_.pool.run([&] { return journal_.last_attempt(row.id); });
  if (!attempt.ok()) co_return attempt.error();
  const RoundId committed = *last ? (*last)->round : RoundId(0);
  const Digest digest = *last ? (*last)->model : row.initial_model;
  const ModelVersion version(committed.value());
  Result<store::Model> model = co_await runtime_.pool.run([&] { return models_.load({row.id, version}, digest); });
  if (!model.ok()) co_return model.error();
  std::vector<float> state;
  if (*last && !(*last)->optimizer.empty()) {
    const std::uint64_t state_values = aggregate::state_vectors(row.plan.optimizer) * row.schema.value_count();
    Result<std::vector<float>> kept =
        co_await runtime_.pool.run([&] { return models_.load_optimizer((*last)->optimizer, state_values); });
    if (!kept.ok()) co_return kept.error();
    state = std::move(*kept);
  }
  std::optional<round::AttemptRecord> open;
  if (*attempt && (*attempt)->round > committed) {
    const store::AttemptRow& a = **attempt;
    open = round::AttemptRecord{a.run,
                                a.round,
                                a.attempt,
                                a.epoch,
                                a.participants,
                                a.scale_bits,
                                {row.id, version, digest, row.schema.model_bytes()}};
  }
  co_return co_await activate(std::move(row), version, digest, std::move(model->bytes), std::move(state),
                              std::move(open));
}

net::Awaitable<Status> RunService::give_up_start(RunId run, std::string reason) {
  co_return co_await runtime_.pool.run(
      [&] { return journal_.set_run_status(run, store::RunStatus::kStopped, reason); });
}

net::Awaitable<Result<RunId>> RunService::start(store::RunRow row, Buffer model) {
  while (!is_taken_up_ && !stopping_) co_await taken_up_.wait();
  if (stopping_) co_return Error{Code::kCancelled, "the coordinator is stopping"};
  if (is_starting_) co_return Error{Code::kFailedPrecondition, "another run is being started"};
  if (is_active()) {
    co_return Error{Code::kFailedPrecondition, "run " + std::to_string(active_->machine.run().value()) +
                                                   " is active; stop it first: fluvial run stop"};
  }
  is_starting_ = true;
  Result<RunId> made = co_await make_run(std::move(row), std::move(model));
  is_starting_ = false;
  co_return made;
}

net::Awaitable<Result<RunId>> RunService::make_run(store::RunRow row, Buffer model) {
  row.status = store::RunStatus::kPaused;  // until its model is on the disk
  row.reason = kStarting;
  row.created_at = runtime_.clock.wall_now();
  const Result<RunId> id = co_await runtime_.pool.run([&] { return journal_.create_run(row); });
  if (!id.ok()) co_return id.error();
  row.id = *id;
  const auto set_up = [&]() -> Status {
    FLUVIAL_TRY(models_.put({row.id, ModelVersion(0)}, row.schema, model.span(), row.initial_model, {}));
    return journal_.set_run_status(row.id, store::RunStatus::kRunning, "");
  };
  Status done = co_await runtime_.pool.run(set_up);
  if (done.ok()) {
    row.status = store::RunStatus::kRunning;
    row.reason.clear();
    const Digest digest = row.initial_model;
    done = co_await activate(std::move(row), ModelVersion(0), digest, std::move(model), {}, {});
  }
  if (done.ok()) co_return *id;
  const Status given_up = co_await give_up_start(*id, "it could not be started: " + done.error().message);
  if (!given_up.ok()) runtime_.log.warn("a run that was not started stays in the list", {{"run", *id}});
  co_return done.error();
}

net::Awaitable<Status> RunService::activate(store::RunRow row, ModelVersion version, Digest digest, Buffer model,
                                            std::vector<float> optimizer_state,
                                            std::optional<round::AttemptRecord> open) {
  Result<kernels::CodecSpec> spec = kernels::parse_codec(row.plan.codec);
  if (!spec.ok()) co_return spec.error();
  Result<std::unique_ptr<kernels::Codec>> codec = kernels::make_codec(*spec);
  if (!codec.ok()) co_return codec.error();
  Result<std::vector<RunId>> continues =
      co_await runtime_.pool.run([&] { return journal_.continued_by(row.id, wire::kContinuesMax); });
  if (!continues.ok()) co_return continues.error();
  const round::ModelRef ref{row.id, version, digest, row.schema.model_bytes()};
  RunStart start{row.id,    row.plan, ref, RoundId(version.value()), std::move(open), epoch_, from_row(row.status),
                 row.reason};
  auto slot = std::make_shared<tree::ModelSlot>(runtime_.strand, ref, row.schema, SharedBytes::from(std::move(model)));
  active_ = std::make_unique<ActiveRun>(
      ActiveRun{RunMachine(std::move(start)), std::make_shared<const round::Schema>(row.schema), std::move(*codec),
                row.plan.optimizer, std::move(optimizer_state), std::move(slot), std::move(*continues)});
  runtime_.log.info("run taken up",
                    {{"run", row.id}, {"name", row.plan.name}, {"committed", version}, {"codec", row.plan.codec}});
  // Nodes may have moved since the open attempt was recorded: the leases are the authority.
  std::map<SiteId, Epoch> leases;
  for (const round::Participant& participant : active_->machine.attempt().participants) {
    if (const auto* lease = registry_.book().lease_of(participant.site)) leases[participant.site] = lease->epoch;
  }
  carry_out(active_->machine.leases_changed(leases));
  carry_out(active_->machine.begin(now()));
  if (active_) carry_out(active_->machine.sites_changed(registry_.book().connected_sites(), now()));
  co_return Status{};
}

// ---- a person's commands ------------------------------------------------------------------------------------------

net::Awaitable<Status> RunService::pause(RunId run, std::string reason) {
  if (!is_active() || active_->machine.run() != run) co_return not_active(run);
  co_return co_await command([&] { return active_->machine.pause(std::move(reason), now()); });
}

net::Awaitable<Status> RunService::resume(RunId run) {
  if (!is_active() || active_->machine.run() != run) co_return not_active(run);
  models_failed({});
  co_return co_await command([&] { return active_->machine.resume(now()); });
}

net::Awaitable<Status> RunService::stop_run(RunId run, std::string reason) {
  if (!is_active() || active_->machine.run() != run) co_return not_active(run);
  co_return co_await command([&] { return active_->machine.stop(std::move(reason), now()); });
}

// The machine answers commands in the order in which it was given them.
template <typename Give>
net::Awaitable<Status> RunService::command(Give give) {
  const auto command = std::make_shared<Command>(runtime_.strand);
  commands_.push_back(command);
  carry_out(give());
  while (!command->answer && !stopping_) co_await command->answered.wait();
  co_return command->answer.value_or(Error{Code::kCancelled, "the coordinator is stopping"});
}

void RunService::carry_out(const Answer& effect) {
  FLUVIAL_CHECK(!commands_.empty(), "an answer that nobody waits for");
  const std::shared_ptr<Command> command = std::move(commands_.front());
  commands_.pop_front();
  command->answer = effect.result;
  command->answered.notify_all();
}

// ---- a run's status -----------------------------------------------------------------------------------------------

void RunService::carry_out(const RecordStatus& effect) {
  tasks_.spawn(runtime_.strand, "record status", record_status(effect));
}

net::Awaitable<void> RunService::record_status(RecordStatus effect) {
  const RunId run = effect.step.run;
  const Status kept =
      co_await runtime_.pool.run([&] { return journal_.set_run_status(run, to_row(effect.status), effect.reason); });
  if (!is_due(effect.step)) co_return;
  if (kept.ok()) {
    carry_out(active_->machine.status_recorded(effect.step, now()));
    co_return;
  }
  const Error why = with_advice(kept.error());
  runtime_.log.error("the run's status could not be recorded",
                     {{"run", run}, {"status", status_name(effect.status)}, {"reason", why.to_string()}});
  carry_out(active_->machine.status_failed(effect.step, why, now()));
}

void RunService::carry_out(const TellStatus& effect) {
  const RunId run = active_->machine.run();
  runtime_.log.info("run " + std::string(status_name(effect.status)), {{"run", run}, {"reason", effect.reason}});
  v1::Envelope message;
  message.mutable_run_state()->set_run(run.value());
  message.mutable_run_state()->set_state(std::string(status_name(effect.status)));
  message.mutable_run_state()->set_reason(effect.reason);
  side_.tell_all(message);
  const bool ends = effect.status == RunStatus::kDone || effect.status == RunStatus::kStopped;
  const FeedLine line{run, RoundId(0), ends, state_line(run, effect.status, effect.reason)};
  if (!ends) return feed_.publish(line);
  side_.end();
  next_.reset();
  ending_ = line;
  if (!evaluating_ || !evaluating_()) announce_end();
}

void RunService::announce_end() {
  if (ending_) feed_.publish(*std::exchange(ending_, std::nullopt));
}

}  // namespace fluvial::coordinator
