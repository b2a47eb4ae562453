#include "coordinator/service/run_starter.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/wire/record_mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr std::string_view kStarting = "starting";  // the reason of a run whose model is not on the disk yet

}  // namespace

RunStarter::RunStarter(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models,
                       Epoch epoch, std::function<std::optional<RunId>()> active, Activate activate)
    : runtime_(runtime),
      journal_(journal),
      models_(models),
      epoch_(epoch),
      active_(std::move(active)),
      activate_(std::move(activate)),
      taken_up_(runtime.strand) {}

void RunStarter::stop() {
  stopping_ = true;
  taken_up_.notify_all();
}

// One run at most has not ended, the newest; beside it there may be some whose start was cut off, and never were.
net::Awaitable<void> RunStarter::take_up() {
  Result<std::vector<store::RunRow>> rows = co_await runtime_.pool.run([this] { return journal_.runs(); });
  if (!rows.ok()) {
    runtime_.log.error("the journal's runs could not be read; none is taken up before a restart",
                       {{"reason", rows.error().to_string()}});
    rows = std::vector<store::RunRow>{};
  }
  for (auto row = rows->rbegin(); row != rows->rend(); ++row) {
    const bool is_paused = row->status == store::RunStatus::kPaused;
    if (!is_paused && row->status != store::RunStatus::kRunning) continue;
    Status taken;
    if (is_paused && row->reason == kStarting) {
      taken = co_await give_up_start(row->id, "its start was cut off");
    } else if (!active_()) {
      taken = co_await take_up(*row);
    }
    if (taken.ok()) continue;
    runtime_.log.error("run could not be taken up; it rests until a restart",
                       {{"run", row->id}, {"reason", taken.error().to_string()}});
  }
  is_taken_up_ = true;
  taken_up_.notify_all();
}

net::Awaitable<Status> RunStarter::take_up(store::RunRow row) {
  const auto loaded = [&]() -> Result<std::optional<store::CommitRow>> { return journal_.last_commit(row.id); };
  Result<std::optional<store::CommitRow>> last = co_await runtime_.pool.run(loaded);
  if (!last.ok()) co_return last.error();
  Result<std::optional<round::AttemptRecord>> attempt =
      co_await runtime_.pool.run([&] { return journal_.last_attempt(row.id); });
  if (!attempt.ok()) co_return attempt.error();
  const RoundId committed = *last ? (*last)->record.round : RoundId(0);
  const Digest digest = *last ? (*last)->record.model.digest : row.initial_model;
  const ModelVersion version(committed.value());
  Result<store::Model> model = co_await runtime_.pool.run([&] { return models_.load({row.id, version}, digest); });
  if (!model.ok()) co_return model.error();
  std::vector<float> state;
  std::string reference = row.keeps_optimizer ? store::ModelStore::name_of({row.id, ModelVersion(0)}, true) : "";
  if (*last) reference = (*last)->optimizer;
  if (!reference.empty()) {
    const std::uint64_t state_values = aggregate::state_vectors(row.plan.optimizer) * row.schema.value_count();
    Result<std::vector<float>> kept =
        co_await runtime_.pool.run([&] { return models_.load_optimizer(reference, state_values); });
    if (!kept.ok()) co_return kept.error();
    state = std::move(*kept);
  }
  std::optional<round::AttemptRecord> open;
  if (*attempt && (*attempt)->round > committed) {
    open = std::move(**attempt);
    open->base = {row.id, version, digest, row.schema.model_bytes()};
  }
  Latest latest{version, digest, std::move(model->bytes), std::move(state), std::move(open)};
  co_return co_await activate(std::move(row), std::move(latest));
}

net::Awaitable<Status> RunStarter::give_up_start(RunId run, std::string reason) {
  co_return co_await runtime_.pool.run(
      [&] { return journal_.set_run_status(run, store::RunStatus::kStopped, reason); });
}

net::Awaitable<Result<RunId>> RunStarter::start(store::RunRow row, Buffer model, std::vector<float> optimizer) {
  while (!is_taken_up_ && !stopping_) co_await taken_up_.wait();
  if (stopping_) co_return Error{Code::kCancelled, "the coordinator is stopping"};
  if (is_starting_) co_return Error{Code::kFailedPrecondition, "another run is being started"};
  if (const std::optional<RunId> active = active_()) {
    co_return Error{Code::kFailedPrecondition,
                    "run " + std::to_string(active->value()) + " is active; stop it first: fluvial run stop"};
  }
  is_starting_ = true;
  Result<RunId> made = co_await make_run(std::move(row), std::move(model), std::move(optimizer));
  is_starting_ = false;
  co_return made;
}

net::Awaitable<Result<RunId>> RunStarter::make_run(store::RunRow row, Buffer model, std::vector<float> optimizer) {
  FLUVIAL_CHECK(row.keeps_optimizer == !optimizer.empty(), "a state for the optimizer, and a row that says so");
  row.status = store::RunStatus::kPaused;  // until its model is on the disk
  row.reason = kStarting;
  row.created_at = runtime_.clock.wall_now();
  const Result<RunId> id = co_await runtime_.pool.run([&] { return journal_.create_run(row); });
  if (!id.ok()) co_return id.error();
  row.id = *id;
  const auto set_up = [&]() -> Status {
    FLUVIAL_TRY(models_.put({row.id, ModelVersion(0)}, row.schema, model.span(), row.initial_model, optimizer));
    return journal_.set_run_status(row.id, store::RunStatus::kRunning, "");
  };
  Status done = co_await runtime_.pool.run(set_up);
  if (done.ok()) {
    row.status = store::RunStatus::kRunning;
    row.reason.clear();
    const Digest digest = row.initial_model;
    Latest latest{ModelVersion(0), digest, std::move(model), std::move(optimizer), {}};
    done = co_await activate(std::move(row), std::move(latest));
  }
  if (done.ok()) co_return *id;
  const Status given_up = co_await give_up_start(*id, "it could not be started: " + done.error().message);
  if (!given_up.ok()) {
    runtime_.log.warn("a run that was not started stays in the list; a restart gives it up",
                      {{"run", *id}, {"reason", given_up.error().to_string()}});
  }
  co_return done.error();
}

net::Awaitable<Status> RunStarter::activate(store::RunRow row, Latest latest) {
  Result<kernels::CodecSpec> spec = kernels::parse_codec(row.plan.codec);
  if (!spec.ok()) co_return spec.error();
  Result<std::unique_ptr<kernels::Codec>> codec = kernels::make_codec(*spec);
  if (!codec.ok()) co_return codec.error();
  Result<std::vector<RunId>> continues =
      co_await runtime_.pool.run([&] { return journal_.continued_by(row.id, wire::kContinuesMax); });
  if (!continues.ok()) co_return continues.error();
  const round::ModelRef ref{row.id, latest.version, latest.digest, row.schema.model_bytes()};
  RunStart start{row.id, row.plan,   ref,       RoundId(latest.version.value()), std::move(latest.open),
                 epoch_, row.status, row.reason};
  auto slot =
      std::make_shared<tree::ModelSlot>(runtime_.strand, ref, row.schema, SharedBytes::from(std::move(latest.model)));
  activate_(std::make_unique<ActiveRun>(
      ActiveRun{RunMachine(std::move(start)), std::make_shared<const round::Schema>(row.schema), std::move(*codec),
                row.plan.optimizer, std::move(latest.optimizer_state), std::move(slot), std::move(*continues)}));
  co_return Status{};
}

}  // namespace fluvial::coordinator
