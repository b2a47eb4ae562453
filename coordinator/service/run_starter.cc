#include "coordinator/service/run_starter.h"

#include <boost/asio/awaitable.hpp>
#include <exception>
#include <utility>

#include "core/aggregate/shapes.h"
#include "core/digest/model_digest.h"
#include "core/net/pool_parallel.h"
#include "core/wire/record_mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr std::string_view kStarting = "starting";  // the reason of a run whose model is not on the disk yet

TrainedModel whole(const store::RunRow& row, const Master& master) {
  return {{row.id, master.key.version, master.digest, row.schema.model_bytes()}, master.bytes, {}, {}};
}

// Runs that could not be taken up, once another has begun: nobody can stop one that is not active, and with its files
// mended it would come back beside a newer run. `--continue` goes on from it.
Status end_resting(store::CoordinatorJournal& journal, RunId begun) {
  FLUVIAL_ASSIGN(const std::vector<store::RunRow> rows, journal.runs());
  for (const store::RunRow& row : rows) {
    const bool has_ended = row.status != store::RunStatus::kRunning && row.status != store::RunStatus::kPaused;
    if (has_ended || row.id == begun) continue;
    FLUVIAL_TRY(
        journal.set_run_status(row.id, store::RunStatus::kStopped,
                               "it could not be taken up, and run " + std::to_string(begun.value()) + " began"));
  }
  return {};
}

}  // namespace

std::shared_ptr<tree::ModelSlot> slot_of(const net::Executor& strand, const round::Schema& schema, TrainedModel model) {
  auto slot = std::make_shared<tree::ModelSlot>(strand, model.ref, schema, std::move(model.bytes));
  if (model.form) slot->also(std::move(model.form->form), std::move(model.form->bytes));
  return slot;
}

RunStarter::RunStarter(tree::Runtime& runtime, store::CoordinatorJournal& journal, store::ModelStore& models,
                       DiskHealth& health, Epoch epoch, std::function<std::optional<RunId>()> active, Activate activate)
    : runtime_(runtime),
      journal_(journal),
      models_(models),
      health_(health),
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
    // Nobody else would say that a run goes on and no round opens. It is nearly always its files.
    health_.run_rests("run " + std::to_string(row->id.value()) +
                      " could not be taken up: " + taken.error().to_string());
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
  Master master{{row.id, ModelVersion(committed.value())}, *last ? (*last)->master : row.initial_model, {}};
  Result<store::Model> model = co_await runtime_.pool.run([&] { return models_.load(master.key, master.digest); });
  if (!model.ok()) co_return model.error();
  master.bytes = SharedBytes::from(std::move(model->bytes));
  Result<TrainedModel> trained = co_await runtime_.pool.run(
      [&]() -> Result<TrainedModel> { return *last ? load_trained(row, **last, master) : whole(row, master); });
  if (!trained.ok()) co_return trained.error();
  Result<States> states = co_await runtime_.pool.run([&] { return load_states(row, *last); });
  if (!states.ok()) co_return states.error();
  std::optional<round::AttemptRecord> open;
  if (*attempt && (*attempt)->round > committed) {
    open = std::move(**attempt);
    open->base = trained->ref;
  }
  Latest latest{std::move(master), std::move(*trained), std::move(states->optimizer), std::move(open)};
  if (*attempt) latest.scale_bits = (*attempt)->scale_bits;
  latest.codec_state = *last ? (*last)->record.codec_state : row.codec_state;
  latest.state = std::move(states->codec);
  const Status known = co_await runtime_.pool.run([&]() -> Status {
    if (!round::late_is_next(row.plan) || !*last) return {};
    FLUVIAL_TRY(know_late(row, **last, latest));
    return know_rates(row, committed, latest);
  });
  if (!known.ok()) co_return known.error();
  co_return co_await activate(std::move(row), std::move(latest));
}

// As the last commit left them, or as the run began.
Result<States> RunStarter::load_states(const store::RunRow& row, const std::optional<store::CommitRow>& last) const {
  States states;
  const std::string begun = store::ModelStore::name_of({row.id, ModelVersion(0)}, store::ModelFile::kOptimizer);
  const std::string& reference = last ? last->optimizer : begun;
  if (last ? !reference.empty() : row.keeps_optimizer) {
    const std::uint64_t count = aggregate::state_vectors(row.plan.optimizer) * row.schema.value_count();
    FLUVIAL_ASSIGN(states.optimizer, models_.load_optimizer(reference, count));
  }
  if (const std::optional<round::VectorRef>& codec = last ? last->record.codec_state : row.codec_state) {
    FLUVIAL_ASSIGN(Buffer state, models_.load_codec_state(reference, codec->digest));
    states.codec = SharedBytes::from(std::move(state));
  }
  return states;
}

// What sites train from after a commit: its own file, the master itself, or the master rounded anew. The difference is
// made again of what it was made of, as far as that is there; else the model travels whole until the next commit.
Result<TrainedModel> RunStarter::load_trained(const store::RunRow& row, const store::CommitRow& last,
                                              const Master& master) {
  FLUVIAL_ASSIGN(const aggregate::Down down, aggregate::parse_down(row.plan.down));
  const DownPlan plan{down, row.plan.chunk_values, row.plan.seed};
  const Digest& named = last.record.model.digest;
  net::PoolParallel parallel(runtime_.pool);
  if (down.kind != aggregate::Down::Kind::kDelta) {
    FLUVIAL_ASSIGN(TrainedModel made, make_trained(parallel, plan, row.schema, master, {}));
    if (made.ref.digest == named) return made;
    return Error{Code::kDataLoss, "the model that sites train from is not what the journal names: " + to_hex(named)};
  }
  TrainedModel kept = whole(row, master);
  if (named != master.digest) {
    FLUVIAL_ASSIGN(store::Model model, models_.load(master.key, named, store::ModelFile::kTrained));
    kept.ref.digest = named;
    kept.bytes = SharedBytes::from(std::move(model.bytes));
  }
  const Result<store::Model> before = load_before(row, last.record.round);
  if (!before.ok()) return kept;
  const ModelVersion version(last.record.round.value() - 1);
  const round::ModelRef ref{row.id, version, store::model_digest(before->bytes.span()), row.schema.model_bytes()};
  const aggregate::BaseModel base{ref, before->bytes.span()};
  Result<TrainedModel> made = make_trained(parallel, plan, row.schema, master, base);
  if (made.ok() && made->ref.digest == named) kept.form = std::move(made->form);
  return kept;
}

// What the machine must know of the rounds before, for updates that missed theirs. A round that is pruned is too old.
Status RunStarter::know_late(const store::RunRow& row, const store::CommitRow& last, Latest& latest) {
  FLUVIAL_ASSIGN(latest.marks, journal_.marks(row.id));
  for (const store::LateSite& late : last.late) latest.late.push_back(late.site);
  const std::vector<SiteId> refused = holding_an_update(last.record.refusals);
  latest.late.insert(latest.late.end(), refused.begin(), refused.end());
  std::uint64_t version = last.record.round.value();
  while (version > 0 && latest.earlier.size() < row.plan.staleness_max) {
    --version;
    round::ModelRef model{row.id, ModelVersion(version), row.initial_model, row.schema.model_bytes()};
    if (version > 0) {
      const Result<store::CommitRow> commit = journal_.commit_of(row.id, RoundId(version));
      if (!commit.ok() && commit.error().code == Code::kNotFound) return {};
      if (!commit.ok()) return commit.error();
      model.digest = commit->record.model.digest;
    }
    latest.earlier.push_back(model);
  }
  return {};
}

// Of a run that is fair by rate: who counted in the last windows, as in the term before.
Status RunStarter::know_rates(const store::RunRow& row, RoundId last, Latest& latest) {
  if (!round::is_fair(row.plan)) return {};
  const std::uint64_t known = std::min(round::kRateHistory, last.value());
  FLUVIAL_ASSIGN(const std::vector<store::CommitRow> commits,
                 journal_.commits(row.id, RoundId(last.value() - known + 1), known));
  FLUVIAL_ASSIGN(auto before, journal_.shares(row.id));  // how often each was counted, less how often in these
  for (const store::CommitRow& commit : commits) {
    for (const auto& [site, entry] : commit.record.contributors.entries()) --before[site].rounds;
  }
  std::set<SiteId> others;
  for (const auto& [site, share] : before) {
    if (share.rounds > 0) others.insert(site);
  }
  latest.rates = round::Rates(others);
  const std::vector<std::uint32_t> factors = round::lateness_of(row.plan, {})->factors;
  for (const store::CommitRow& commit : commits) {
    latest.rates.committed(ModelVersion(commit.record.round.value()), commit.record.contributors, factors);
  }
  return {};
}

// What sites trained from in that round.
Result<store::Model> RunStarter::load_before(const store::RunRow& row, RoundId round) {
  const round::ModelKey key{row.id, ModelVersion(round.value() - 1)};
  if (key.version == ModelVersion(0)) return models_.load(key, row.initial_model);
  FLUVIAL_ASSIGN(const store::CommitRow commit, journal_.commit_of(row.id, RoundId(key.version.value())));
  const bool is_master = commit.master == commit.record.model.digest;
  return models_.load(key, commit.record.model.digest,
                      is_master ? store::ModelFile::kModel : store::ModelFile::kTrained);
}

net::Awaitable<Status> RunStarter::give_up_start(RunId run, std::string reason) {
  co_return co_await runtime_.pool.run(
      [&] { return journal_.set_run_status(run, store::RunStatus::kStopped, reason); });
}

net::Awaitable<Result<RunId>> RunStarter::start(PrepareRun prepare) {
  while (!is_taken_up_ && !stopping_) co_await taken_up_.wait();
  if (stopping_) co_return Error{Code::kCancelled, "the coordinator is stopping"};
  if (is_starting_) co_return Error{Code::kFailedPrecondition, "another run is being started"};
  if (const std::optional<RunId> active = active_()) {
    co_return Error{Code::kFailedPrecondition,
                    "run " + std::to_string(active->value()) + " is active; stop it first: fluvial run stop"};
  }
  is_starting_ = true;
  Result<RunId> made = Error{Code::kInternal, "the run was not made"};
  try {
    Result<NewRun> begun = co_await runtime_.pool.run(prepare);
    made = begun.ok() ? co_await make_run(std::move(*begun)) : begun.error();
  } catch (const std::exception& error) {  // no memory, say: the next start may have it
    made = Error{Code::kInternal, std::string("starting a run: ") + error.what()};
  }
  is_starting_ = false;
  co_return made;
}

net::Awaitable<Result<RunId>> RunStarter::make_run(NewRun begun) {
  auto& [row, model, states] = begun;
  FLUVIAL_CHECK(row.keeps_optimizer == !states.optimizer.empty(), "a state for the optimizer, and a row that says so");
  FLUVIAL_CHECK(row.codec_state.has_value() == !states.codec.bytes.empty(), "likewise for the codec");
  row.status = store::RunStatus::kPaused;  // until its model is on the disk
  row.reason = kStarting;
  row.created_at = runtime_.clock.wall_now();
  const Result<RunId> id = co_await runtime_.pool.run([&] { return journal_.create_run(row); });
  if (!id.ok()) co_return id.error();
  row.id = *id;
  const auto set_up = [&]() -> Status {
    FLUVIAL_TRY(models_.put({row.id, ModelVersion(0)}, row.schema, model.span(), row.initial_model, states.optimizer,
                            states.codec.bytes));
    return journal_.set_run_status(row.id, store::RunStatus::kRunning, "");
  };
  Status done = co_await runtime_.pool.run(set_up);
  if (done.ok()) {
    row.status = store::RunStatus::kRunning;
    row.reason.clear();
    Master master{{row.id, ModelVersion(0)}, row.initial_model, SharedBytes::from(std::move(model))};
    TrainedModel trained = whole(row, master);
    Latest latest{std::move(master), std::move(trained), std::move(states.optimizer), {}};
    latest.codec_state = row.codec_state;
    latest.state = std::move(states.codec);
    done = co_await activate(std::move(row), std::move(latest));
  }
  if (done.ok()) {
    const Status ended = co_await runtime_.pool.run([&] { return end_resting(journal_, *id); });
    if (!ended.ok()) {
      runtime_.log.warn("a run that rests could not be ended; the start of the next run does",
                        {{"run", *id}, {"reason", ended.error().to_string()}});
    }
    health_.run_begins();
    co_return *id;
  }
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
  const Result<aggregate::Down> down = aggregate::parse_down(row.plan.down);
  if (!down.ok()) co_return down.error();
  if (down->kind !=
      aggregate::Down::Kind::kWhole) {  // one that this build cannot make is said now, and not by each commit
    const auto made = aggregate::make_down_codec(down->codec, down->kind == aggregate::Down::Kind::kDelta);
    if (!made.ok()) co_return made.error();
  }
  const round::ModelRef& ref = latest.trained.ref;
  RunStart start{row.id, row.plan,   ref,       RoundId(ref.version.value()), std::move(latest.open),
                 epoch_, row.status, row.reason};
  start.earlier = std::move(latest.earlier);
  start.late = std::move(latest.late);
  start.marks = std::move(latest.marks);
  start.scale_bits = latest.scale_bits;
  start.rates = std::move(latest.rates);
  const aggregate::Shapes shapes(row.schema, row.plan.chunk_values);
  Result<std::vector<std::uint64_t>> pass_values = aggregate::pass_values(**codec, shapes);
  if (!pass_values.ok()) co_return pass_values.error();
  start.pass_values = std::move(*pass_values);
  start.codec_state = latest.codec_state;
  std::optional<Digest> tree = latest.trained.tree;
  if (!tree) {
    const Result<Digest> made = co_await runtime_.pool.run([&]() -> Result<Digest> {
      net::PoolParallel parallel(runtime_.pool);
      return model_tree_digest(parallel, latest.trained.bytes.bytes);
    });
    if (!made.ok()) co_return made.error();
    tree = *made;
  }
  auto slot = slot_of(runtime_.strand, row.schema, std::move(latest.trained));
  activate_(std::make_unique<ActiveRun>(
      ActiveRun{RunMachine(std::move(start)),
                std::make_shared<const round::Schema>(row.schema),
                std::move(*codec),
                row.plan.optimizer,
                std::make_shared<const std::vector<float>>(std::move(latest.optimizer_state)),
                std::move(latest.master.bytes),
                DownPlan{*down, row.plan.chunk_values, row.plan.seed},
                std::move(slot),
                std::move(*continues),
                tree,
                {},
                std::move(latest.state)}));
  co_return Status{};
}

}  // namespace fluvial::coordinator
