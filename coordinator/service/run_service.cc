#include "coordinator/service/run_service.h"

#include <algorithm>
#include <chrono>
#include <set>
#include <utility>

#include "coordinator/service/json.h"
#include "core/net/pool_parallel.h"
#include "core/transfer/cut.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::coordinator {
namespace {

constexpr Duration kLookPause = std::chrono::milliseconds(10);  // each look goes over all sites

}  // namespace

RunService::RunService(tree::Runtime& runtime, net::TaskGroup& tasks, store::CoordinatorJournal& journal,
                       store::ModelStore& models, Registry& registry, RunObserver& observer, tree::Hub& hub,
                       Epoch epoch)
    : runtime_(runtime),
      tasks_(tasks),
      journal_(journal),
      models_(models),
      registry_(registry),
      observer_(observer),
      hub_(hub),
      side_(runtime, *this, hub),
      starter_(
          runtime, journal, models, epoch, [this] { return active_run(); },
          [this](std::unique_ptr<ActiveRun> run) { activate(std::move(run)); }),
      commands_(runtime.strand),
      health_(runtime.metrics, journal),
      look_(runtime.strand, kLookPause, [this] { look_at_members(); }),
      timer_(runtime.strand),
      home_timer_(runtime.strand) {}

void RunService::stop() {
  look_.stop();
  timer_.cancel();
  home_timer_.cancel();
  side_.lane().stop();
  starter_.stop();
  commands_.stop();
}

std::optional<RunId> RunService::active_run() const {
  if (!active_) return std::nullopt;
  const RunStatus status = active_->machine.status();
  if (is_over(status)) return std::nullopt;
  return active_->machine.run();
}

void RunService::activate(std::unique_ptr<ActiveRun> run) {
  active_ = std::move(run);
  observer_.run_taken_up(active_->machine);
  // Nodes may have moved since the open attempt was recorded: the leases are the authority.
  std::map<SiteId, Epoch> leases;
  for (const round::Participant& participant : active_->machine.attempt().participants) {
    if (const auto* lease = registry_.book().lease_of(participant.site)) leases[participant.site] = lease->epoch;
  }
  carry_out(active_->machine.leases_changed(leases));
  carry_out(active_->machine.begin(now()));
  carry_out(active_->machine.sites_changed(registry_.book().connected_sites(), now()));
}

// ---- what comes from the hub --------------------------------------------------------------------------------------

bool RunService::is_current(RunId run, RoundId round) const {
  return active_ && run == active_->machine.run() && round == active_->machine.last_committed().next();
}

Result<transfer::Terms> RunService::terms(bool) {
  const RunMachine& machine = active_->machine;
  const round::AttemptRecord& attempt = machine.attempt();
  return transfer::make_terms(machine.plan(), active_->schema->value_count(), active_->schema->integer_count(),
                              attempt.base.digest, attempt.scale_bits, active_->codec, active_->schema,
                              active_->slot->integers());
}

Status RunService::may_take(const transfer::UpdateHead& head) const {
  FLUVIAL_TRY(registry_.book().check_quarantine(head.site));
  return active_->machine.admit(head.site, head.lease, head.weight);
}

Status RunService::may_take(const transfer::PartialHead& head) const {
  return active_->machine.admit(head.attempt, head.epoch, head.what.contributors);
}

void RunService::staged(ArrivalId arrival, const round::Arrival& what) {
  for (const round::Refusal& refusal : what.refusals) note_refusal(refusal);
  carry_out(active_->machine.arrived(arrival, what));
}

void RunService::taken(ArrivalId arrival, const round::ContributorSet& with_probes) {
  carry_out(active_->machine.taken(arrival, with_probes, now()));
}

void RunService::take_failed(ArrivalId arrival, NodeId child, const Error& error) {
  observer_.sum_given_up(active_->machine.attempt(), child, error);
  carry_out(active_->machine.take_failed(arrival, error, now()));
}

void RunService::will_not_be_in(const round::Refusal& refusal) {
  note_refusal(refusal);
  carry_out(active_->machine.refused(refusal, now()));
}

void RunService::has_declined(AttemptId attempt, const round::Refusal& refusal) {
  note_refusal(refusal);
  carry_out(active_->machine.declined(attempt, refusal, now()));
}

void RunService::note_refusal(const round::Refusal& refusal) {
  observer_.site_refused(active_->machine.attempt(), refusal);
  note_conflict(refusal);
}

std::shared_ptr<tree::ModelSlot> RunService::model(const round::ModelRef& ref) {
  return active_ && active_->slot->ref() == ref ? active_->slot : nullptr;
}

// ---- effects ------------------------------------------------------------------------------------------------------

void RunService::carry_out(Effects effects) {
  for (const Effect& effect : effects) {
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void RunService::carry_out(const TellMoved& effect) { tell_moved(effect.sites); }

void RunService::carry_out(const RecordAttempt& effect) {
  tasks_.spawn(runtime_.strand, "record attempt", record_attempt(effect));
}

net::Awaitable<void> RunService::record_attempt(RecordAttempt effect) {
  const round::AttemptRecord& record = effect.record;
  if (effect.sum_anew) {
    const round::Schema& schema = *active_->schema;
    const kernels::ChunkLayout layout{schema.value_count(), active_->machine.plan().chunk_values};
    side_.begin_sum(record.run, record.round, {layout, schema.integer_count(), record.scale_bits});
  }
  if (record.attempt == AttemptId(1) || !since_) {  // the round is new to this process
    side_.begin();
    since_ = {now(), hub_.payload_bytes_in(), hub_.payload_bytes_out()};
  }
  observer_.recording(record);
  const Status recorded = co_await runtime_.pool.run([this, &record] { return journal_.open_attempt(record); });
  if (recorded.ok()) observer_.recorded(record);
  if (!is_due(effect.step)) co_return;
  if (!recorded.ok()) {
    step_failed(effect.step, DiskPart::kJournal, recorded.error());
    co_return;
  }
  refuse_barred();
  carry_out(active_->machine.attempt_recorded(effect.step, now()));
}

void RunService::carry_out(const OpenRound&) {
  observer_.attempt_opened(active_->machine.attempt(), active_->machine.soft_deadline() - now());
  send_openings(hub_.nodes());
}

void RunService::send_openings(const std::set<NodeId>& children) {
  const RunMachine& machine = active_->machine;
  wire::Opening whole = transfer::opening_of(machine.attempt(), machine.plan(), *active_->schema);
  whole.continues = active_->continues;
  side_.send_openings(std::move(whole), machine.soft_deadline() - now(), machine.hard_deadline() - now(), children);
}

void RunService::carry_out(const SetTimer& effect) {
  timer_.after(effect.at - now(), [this] {
    if (active_) carry_out(active_->machine.tick(now()));
  });
}

void RunService::carry_out(const Take& effect) {
  if (const auto arrival = side_.sum().find(effect.arrival.value())) observer_.taking(active_->machine, *arrival);
  side_.take(effect.arrival);
}

void RunService::carry_out(const Finalise& effect) {
  side_.lane().push([this, effect] { return do_finalise(effect); });
}

net::Awaitable<void> RunService::do_finalise(Finalise effect) {
  if (!is_due(effect.step)) co_return;
  FinaliseInput input{effect.record,      active_->schema,          {active_->slot, active_->slot->bytes()},
                      active_->optimizer, active_->optimizer_state, active_->machine.plan().sum_digest};
  net::PoolParallel parallel(runtime_.pool);
  Result<NextModel> next = co_await runtime_.pool.run(
      [&] { return finalise(parallel, side_.sum().node(), models_, std::move(input)); }, net::Work::kFinalise);
  if (!is_due(effect.step)) co_return;
  if (!next.ok()) {
    step_failed(effect.step, DiskPart::kModels, next.error());
    co_return;
  }
  next_ = std::move(*next);
  carry_out(active_->machine.finalised(effect.step, next_->ref, now()));
}

void RunService::carry_out(const RecordCommit& effect) {
  tasks_.spawn(runtime_.strand, "record commit", record_commit(effect));
}

net::Awaitable<void> RunService::record_commit(RecordCommit effect) {
  const round::CommitRecord& record = effect.record;
  store::CommitRow row;
  row.record = record;
  row.participants_count = record.participant_count();
  row.master = record.model.digest;
  row.optimizer = next_->optimizer_file;
  row.sum_digest = next_->sum_digest;
  row.bytes_up = hub_.payload_bytes_in() - since_->bytes_in;
  row.bytes_down = hub_.payload_bytes_out() - since_->bytes_out;
  row.metrics = mean_metrics(record.contributors);
  row.committed_at = runtime_.clock.wall_now();
  row.duration_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now() - since_->at).count());
  observer_.committing(row, *next_);
  const Status recorded = co_await runtime_.pool.run([this, &row] { return journal_.commit(row); });
  if (!is_due(effect.step)) co_return;
  if (!recorded.ok()) {
    step_failed(effect.step, DiskPart::kJournal, recorded.error());
    co_return;
  }
  active_->optimizer_state = std::move(next_->optimizer_state);
  active_->slot->abandon();
  active_->slot = std::make_shared<tree::ModelSlot>(runtime_.strand, next_->ref, *active_->schema, next_->bytes);
  next_.reset();
  observer_.committed(row, active_->machine.pace());
  health_.models_work();
  const std::vector<NodeId> home = registry_.send_home();
  if (!home.empty()) carry_out(active_->machine.sites_changed(registry_.book().connected_sites(), now()));
  carry_out(active_->machine.commit_recorded(effect.step, now()));
  dismiss(home, {Code::kStale, "a nearer parent serves"});  // after they have been told of the commit
}

void RunService::carry_out(const Publish& effect) {
  const round::CommitRecord& record = effect.record;
  hub_.book().close();
  side_.send_commits({record.run, record.round, record.attempt, record.model, record.contributors, record.refusals,
                      effect.last, record.late});
  if (model_committed_)
    model_committed_(active_->slot->ref(), {active_->slot, active_->slot->bytes()}, active_->schema);
  tasks_.spawn(runtime_.strand, "prune", prune(record.run, record.model.version, active_->machine.plan().models_kept));
}

net::Awaitable<void> RunService::prune(RunId run, ModelVersion last, std::uint64_t kept) {
  const Status pruned = co_await runtime_.pool.run([&] { return models_.prune(run, last, kept); });
  if (!pruned.ok()) runtime_.log.warn("old models could not be pruned", {{"reason", pruned.error().to_string()}});
}

}  // namespace fluvial::coordinator
