#include "coordinator/service/run_steps.h"

#include <boost/asio/awaitable.hpp>
#include <boost/asio/post.hpp>
#include <chrono>
#include <utility>

#include "coordinator/service/commands.h"
#include "core/net/pool_parallel.h"
#include "core/round/reported.h"
#include "core/store/audit_log.h"
#include "core/transfer/cut.h"

namespace fluvial::coordinator {

RunSteps::RunSteps(tree::Runtime& runtime, net::TaskGroup& tasks, const Keeps& keeps, RunObserver& observer,
                   tree::Hub& hub, tree::ParentSide& side, RunMembers& members, const RollCall& roll_call,
                   RunHost& host)
    : runtime_(runtime),
      tasks_(tasks),
      journal_(keeps.journal),
      models_(keeps.models),
      keeper_(keeps.journal, keeps.models),
      signer_(keeps.signer),
      authorship_(keeps.authorship),
      observer_(observer),
      hub_(hub),
      side_(side),
      members_(members),
      roll_call_(roll_call),
      host_(host),
      health_(runtime.metrics, keeps.journal) {}

bool RunSteps::is_due(Step step) {
  const ActiveRun* run = host_.current();
  return run != nullptr && run->machine.awaits(step);
}

// As it is signed.
wire::Opening RunSteps::opening_of(const round::AttemptRecord& record, const std::optional<round::Pass>& pass) const {
  wire::Opening whole = transfer::opening_of(record, machine().plan(), *host_.current()->schema);
  whole.continues = host_.current()->continues;
  whole.late = machine().lateness();
  whole.base_tree = host_.current()->tree;
  whole.pass = pass;
  return whole;
}

transfer::SumShape RunSteps::shape_of(const round::AttemptRecord& record,
                                      const std::optional<round::Pass>& pass) const {
  const round::Schema& schema = *host_.current()->schema;
  const std::optional<round::Lateness> late = machine().lateness();
  return {{pass ? pass->value_count : schema.value_count(), machine().plan().chunk_values},
          schema.integer_count(),
          record.scale_bits,
          late ? late->factors : std::vector<std::uint32_t>()};
}

// ---- an attempt ---------------------------------------------------------------------------------------------------

void RunSteps::begin(const RecordAttempt& effect) {
  tasks_.spawn(runtime_.strand, "record attempt", record_attempt(effect));
}

net::Awaitable<void> RunSteps::record_attempt(RecordAttempt effect) {
  const round::AttemptRecord& record = effect.record;
  const std::optional<round::Pass> pass = machine().pass();
  host_.current()->means.clear();
  if (effect.sum_anew) {
    const transfer::SumShape shape = shape_of(record, pass);
    if (effect.goes_over) {
      side_.go_over(record.run, record.round, shape, machine().plan().staleness_max);
    } else {
      side_.begin_sum(record.run, record.round, shape);
    }
  }
  if (record.attempt == AttemptId(1) || !since_) {  // the round is new to this process
    side_.begin();
    since_ = {now(), hub_.payload_bytes_in(),
              std::exchange(down_before_, std::nullopt).value_or(hub_.payload_bytes_out()), runtime_.clock.wall_now()};
  }
  observer_.recording(record);
  const TimePoint begun = now();
  const wire::Opening whole = opening_of(record, pass);
  wire::Order order;
  const Status recorded = co_await runtime_.pool.run([&]() -> Status {
    FLUVIAL_TRY(journal_.open_attempt(record));
    order = signer_.opening(whole, record.participants);
    return {};
  });
  observer_.took(Work::kAttemptRecord, now() - begun);
  side_.spans().add(record.run, record.round, {round::SpanKind::kFsync, {}, begun, now()});
  if (recorded.ok()) observer_.recorded(record);
  if (!is_due(effect.step)) co_return;
  if (!recorded.ok()) {
    step_failed(effect.step, DiskPart::kJournal, recorded.error());
    co_return;
  }
  host_.current()->order = std::move(order);
  if (pass) give_vector(*pass, record.base);
  members_.refuse_barred();
  host_.carry_out(machine().attempt_recorded(effect.step, now()));
}

// ---- a commit -----------------------------------------------------------------------------------------------------

void RunSteps::begin(const Finalise& effect) {
  late_ = roll_call_.late(machine(), effect.record.late);  // the reasons as they are now, when the round closes
  sealed_at_ = now();
  side_.lane().push([this, effect] { return do_finalise(effect); });
}

net::Awaitable<void> RunSteps::do_finalise(Finalise effect) {
  if (!is_due(effect.step)) co_return;
  const ActiveRun& run = *host_.current();
  FinaliseInput input{effect.record,
                      effect.divisor,
                      run.schema,
                      run.master,
                      run.optimizer,
                      run.optimizer_state,
                      run.machine.plan().sum_digest,
                      run.codec->spec()};
  input.passes = passes_of(effect.record);
  input.down = run.down;
  const std::shared_ptr<const tree::ModelSlot> before = run.slot;  // the run may have ended by then
  input.trained_before = aggregate::BaseModel{before->ref(), before->bytes()};
  net::PoolParallel parallel(runtime_.pool);
  const TimePoint begun = now();
  TimePoint written = begun;
  input.writing = [this, &written] { written = now(); };
  if (signer_.signs()) {  // else no child could tell that it is the one
    input.ahead = [this, step = effect.step](const TrainedModel& unnamed) {
      boost::asio::post(runtime_.strand, [this, step, unnamed] { made(step, unnamed); });
    };
  }
  Result<NextModel> next = co_await runtime_.pool.run(
      [&] { return finalise(parallel, side_.sum().node(), models_, std::move(input)); }, net::Work::kFinalise);
  side_.spans().add(effect.record.run, effect.record.round, {round::SpanKind::kFinalise, {}, begun, written});
  side_.spans().add(effect.record.run, effect.record.round, {round::SpanKind::kFsync, {}, written, now()});
  observer_.took(Work::kFinalise, now() - begun);
  if (!is_due(effect.step)) co_return;
  if (!next.ok()) {
    step_failed(effect.step, DiskPart::kModels, next.error());
    co_return;
  }
  next_ = std::move(*next);
  if (!next_->trained.whole_because.empty()) observer_.travels_whole(next_->trained.ref, next_->trained.whole_because);
  const std::optional<NamedVector>& state = next_->codec_state;
  host_.carry_out(
      machine().finalised(effect.step, next_->trained.ref, now(), state ? std::optional(state->ref) : std::nullopt));
}

// Children begin to fetch it while it is digested, written and committed. They use it when the commit is signed that
// names it.
void RunSteps::made(Step step, TrainedModel unnamed) {
  if (!is_due(step) || (ahead_ && ahead_->is_called(unnamed.ref))) return;
  give_up_ahead();
  down_before_ = hub_.payload_bytes_out();
  const round::ModelRef ref = unnamed.ref;
  ahead_ = slot_of(runtime_.strand, *host_.current()->schema, std::move(unnamed));
  hub_.tell_ahead(ref);
}

std::shared_ptr<tree::ModelSlot> RunSteps::ahead(const round::ModelRef& ref) const {
  return ahead_ && ahead_->is_called(ref) ? ahead_ : nullptr;
}

void RunSteps::give_up_ahead() {
  if (ahead_) ahead_->abandon();
  ahead_.reset();
}

void RunSteps::rest() {
  next_.reset();
  down_before_.reset();
  give_up_ahead();
}

void RunSteps::begin(const RecordCommit& effect) {
  tasks_.spawn(runtime_.strand, "record commit", record_commit(effect));
}

store::CommitRow RunSteps::row_of(const round::CommitRecord& record) const {
  using std::chrono::milliseconds;
  store::CommitRow row;
  row.record = record;
  row.late = late_;
  row.participants_count = host_.current()->machine.attempt().participants.size();
  row.master = next_->master;
  row.optimizer = next_->optimizer_file;
  row.sum_digest = next_->sum_digest;
  row.bytes_up = hub_.payload_bytes_in() - since_->bytes_in;
  row.bytes_down = down_before_.value_or(hub_.payload_bytes_out()) - since_->bytes_out;
  row.metrics = round::settle_metrics(host_.current()->machine.plan(), row.record.contributors);
  row.committed_at = runtime_.clock.wall_now();
  row.duration_ms = static_cast<std::uint64_t>(std::chrono::duration_cast<milliseconds>(now() - since_->at).count());
  return row;
}

net::Awaitable<void> RunSteps::record_commit(RecordCommit effect) {
  store::CommitRow row = row_of(effect.record);
  const bool last = row.record.round.value() >= machine().plan().rounds;
  observer_.committing(row, *next_);
  const std::optional<Digest> tree = next_->trained.tree;
  SignedCommit told;
  const TimePoint begun = now();
  const Status recorded = co_await runtime_.pool.run([&]() -> Status {
    told.order = signer_.commit(row.record, last, row.master, tree);
    row.order = kept(told.order);
    row.keys = authorship_.keys_of(row.record.contributors);
    FLUVIAL_TRY(journal_.commit(row));
    told.outcomes = signer_.outcomes(round::decided_by(row.record, last));
    return {};
  });
  committed_at_ = now();
  side_.spans().add(row.record.run, row.record.round, {round::SpanKind::kFsync, {}, begun, committed_at_});
  observer_.took(Work::kCommitRecord, committed_at_ - begun);
  observer_.took(Work::kCommit, committed_at_ - sealed_at_);
  if (!is_due(effect.step)) co_return;
  if (!recorded.ok()) {
    step_failed(effect.step, DiskPart::kJournal, recorded.error());
    co_return;
  }
  commit_ = std::move(told);
  committed_master_ = next_->master;
  ActiveRun& run = *host_.current();
  run.optimizer_state = std::make_shared<const std::vector<float>>(std::move(next_->optimizer_state));
  run.master = std::move(next_->bytes);
  if (next_->codec_state) run.codec_state = std::move(next_->codec_state->bytes);
  run.slot->abandon();
  if (round::is_async(run.machine.plan())) run.overtaken.add(run.slot, now());
  run.tree = next_->trained.tree;
  run.slot = slot_of_next(*run.schema);
  next_.reset();
  observer_.committed(row, run.machine.pace());
  health_.models_work();
  const std::vector<NodeId> home = members_.leave_for_home();
  host_.carry_out(run.machine.commit_recorded(effect.step, now()));
  members_.send(home);  // after they have been told of the commit
}

// The one that is passed on already, under its name from now on.
std::shared_ptr<tree::ModelSlot> RunSteps::slot_of_next(const round::Schema& schema) {
  TrainedModel& trained = next_->trained;
  if (!trained.tree || !ahead(round::called_ahead(trained.ref, *trained.tree))) {
    give_up_ahead();
    return slot_of(runtime_.strand, schema, std::move(trained));
  }
  ahead_->named(trained.ref);
  return std::exchange(ahead_, nullptr);
}

void RunSteps::publish(const Publish& effect) {
  ActiveRun& run = *host_.current();
  const round::CommitRecord& record = effect.record;
  if (!round::late_is_next(run.machine.plan()) || effect.last) hub_.book().close();
  if (effect.last) run.overtaken.clear();
  const TimePoint begun = now();
  round::CommitRecord decided = round::decided_by(record, effect.last);
  side_.send_commits({record.run, record.round, record.attempt, record.model, std::move(decided.contributors),
                      std::move(decided.refusals), effect.last, std::move(decided.late), commit_.order,
                      std::exchange(commit_.outcomes, {})});
  side_.spans().add(record.run, record.round, {round::SpanKind::kPublish, {}, begun, now()});
  note_round(record);
  const round::ModelRef master{record.run, record.model.version, committed_master_, record.model.bytes};
  if (model_committed_) model_committed_(master, run.master, run.schema);
  tasks_.spawn(runtime_.strand, "prune", prune(run.machine.plan(), master, round::mean_metrics(record.contributors)));
}

// What the nodes did for it they report from now on.
void RunSteps::note_round(const round::CommitRecord& record) {
  Committed committed{record.run, record.round, record.attempt, since_->at, since_->wall, committed_at_, {}, {}};
  for (round::RoundSpans& own : side_.spans().take_until(record.run, record.round, now())) {
    if (own.round == record.round) committed.spans = std::move(own.spans);
  }
  // An opening that the journal did not take lies before the round that began later.
  std::erase_if(committed.spans, [this](const round::Span& span) { return span.begun < since_->at; });
  for (const auto& [site, contribution] : record.contributors.entries()) members_.way_of(site, &committed.parents);
  for (const round::Refusal& refusal : record.refusals) members_.way_of(refusal.site, &committed.parents);
  for (const SiteId site : record.late) members_.way_of(site, &committed.parents);
  traces_.committed(std::move(committed));
}

net::Awaitable<void> RunSteps::prune(round::Plan plan, round::ModelRef model, round::Metrics metrics) {
  const Status pruned = co_await runtime_.pool.run([&] { return keeper_.committed(plan, model, metrics); });
  if (!pruned.ok()) {
    runtime_.log.warn("old models could not be pruned; the next commit tries again",
                      {{"run", model.run}, {"reason", pruned.error().to_string()}});
  }
}

// ---- a status -----------------------------------------------------------------------------------------------------

void RunSteps::begin(const RecordStatus& effect) {
  RecordStatus explained = effect;
  if (!effect.absent.empty()) {
    explained.reason += "; " + roll_call_.words(machine(), effect.absent);
    machine().explain(effect.step, explained.reason);
  }
  tasks_.spawn(runtime_.strand, "record status", record_status(std::move(explained)));
}

namespace {

// What the run did of itself; of what a person told it to whoever takes the order writes down who that was.
std::optional<store::AuditEntry> own_act(const RecordStatus& effect) {
  if (effect.status == RunStatus::kRunning || is_by_person(effect.reason)) return std::nullopt;
  store::AuditEntry entry{.run = effect.step.run, .detail = effect.reason};
  entry.kind = effect.status == RunStatus::kPaused    ? store::AuditKind::kRunPaused
               : effect.status == RunStatus::kStopped ? store::AuditKind::kRunStopped
                                                      : store::AuditKind::kRunFinished;
  return entry;
}

}  // namespace

net::Awaitable<void> RunSteps::record_status(RecordStatus effect) {
  const RunId run = effect.step.run;
  const TimePoint begun = now();
  const auto set = [&] { return journal_.set_run_status(run, effect.status, effect.reason); };
  const std::optional<store::AuditEntry> entry = own_act(effect);
  const WallTime when = runtime_.clock.wall_now();
  const Status kept = co_await runtime_.pool.run(
      [&]() -> Status { return entry ? store::AuditLog(journal_).with(*entry, when, set) : set(); });
  observer_.took(Work::kStatusRecord, now() - begun);
  if (!is_due(effect.step)) co_return;
  if (kept.ok()) {
    host_.carry_out(machine().status_recorded(effect.step, now()));
    co_return;
  }
  const Error why = health_.with_advice(kept.error());
  observer_.status_not_recorded(run, effect.status, why);
  host_.carry_out(machine().status_failed(effect.step, why, now()));
}

v1::Envelope RunSteps::state() const {
  v1::Envelope message;
  v1::RunState& told = *message.mutable_run_state();
  told.set_run(machine().run().value());
  told.set_state(std::string(run_status_name(machine().status())));
  told.set_reason(machine().reason());
  told.set_name(machine().plan().name);
  if (const wire::Order order = signer_.run_state(told)) *told.mutable_order() = *order;
  return message;
}

// ---- a disk that fails --------------------------------------------------------------------------------------------

void RunSteps::step_failed(Step step, DiskPart part, Error error) {
  if (part == DiskPart::kJournal) {
    error = health_.with_advice(std::move(error));
  } else {
    health_.models_failed(error.to_string());
  }
  observer_.step_failed(machine().attempt(), part, error);
  host_.carry_out(machine().step_failed(step, error));
}

}  // namespace fluvial::coordinator
