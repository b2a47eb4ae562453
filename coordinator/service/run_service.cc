#include "coordinator/service/run_service.h"

#include <algorithm>
#include <boost/asio/bind_executor.hpp>
#include <set>
#include <utility>

#include "coordinator/service/json.h"
#include "core/net/pool_parallel.h"
#include "core/transfer/cut.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::coordinator {
namespace {
constexpr std::string_view kFaultHelp = "1 while this part of the disk fails and nothing is promised";
}  // namespace

RunService::RunService(tree::Runtime& runtime, net::TaskGroup& tasks, store::CoordinatorJournal& journal,
                       store::ModelStore& models, Registry& registry, Feed& feed, tree::Hub& hub, Epoch epoch)
    : runtime_(runtime),
      tasks_(tasks),
      journal_(journal),
      models_(models),
      registry_(registry),
      feed_(feed),
      hub_(hub),
      epoch_(epoch),
      side_(runtime, *this, hub),
      timer_(runtime.strand),
      home_timer_(runtime.strand),
      quarantined_(
          runtime.metrics.gauge("sites_quarantined", "Sites that take part in no round until they are cleared")),
      models_fault_(runtime.metrics.gauge("storage_fault", kFaultHelp, {{"part", "models"}})),
      taken_up_(runtime.strand),
      pace_report_(runtime.metrics, runtime.log, [this](SiteId site) { return registry_.book().name_of(site); }) {
  telemetry::Gauge journal_fault = runtime.metrics.gauge("storage_fault", kFaultHelp, {{"part", "journal"}});
  runtime.metrics.before_render([&journal, journal_fault] { journal_fault.set(journal.fault() ? 1 : 0); });
}

void RunService::stop() {
  timer_.cancel();
  home_timer_.cancel();
  side_.lane().stop();
  stopping_ = true;
  taken_up_.notify_all();
  for (const auto& command : commands_) command->answered.notify_all();
}

telemetry::Logger RunService::round_log() const {
  const round::AttemptRecord& attempt = active_->machine.attempt();
  return runtime_.log.with({{"run", attempt.run}, {"round", attempt.round}, {"attempt", attempt.attempt}});
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
  round_log().error("the sum is given up: everybody is asked again", {{"child", child}, {"reason", error.to_string()}});
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
  round_log().warn("site refused",
                   {{"site", registry_.book().name_of(refusal.site)}, {"reason", refusal.error.to_string()}});
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
  if (record.attempt == AttemptId(1) || round_opened_ == TimePoint()) {  // the round is new to this process
    side_.begin();
    round_opened_ = now();
    bytes_in_before_ = hub_.payload_bytes_in();
    bytes_out_before_ = hub_.payload_bytes_out();
  }
  const store::AttemptRow row{record.run,          record.round,      record.attempt,    record.epoch,
                              record.participants, record.scale_bits, record.base.digest};
  const Status recorded = co_await runtime_.pool.run([this, row] { return journal_.open_attempt(row); });
  if (!is_due(effect.step)) co_return;
  if (!recorded.ok()) {
    storage_failed(effect.step, "journal", recorded.error());
    co_return;
  }
  refuse_barred();
  carry_out(active_->machine.attempt_recorded(effect.step, now()));
}

void RunService::carry_out(const OpenRound&) {
  const round::AttemptRecord& attempt = active_->machine.attempt();
  if (attempt.attempt == AttemptId(1)) side_.counts().rounds_opened.add();
  side_.counts().attempts.add();
  side_.counts().round.set(static_cast<double>(attempt.round.value()));
  side_.counts().participants.set(static_cast<double>(attempt.participants.size()));
  pace_report_.round_opened(active_->machine.soft_deadline() - now());
  round_log().info("round open", {{"participants", attempt.participants.size()}, {"scale_bits", attempt.scale_bits}});
  send_openings(hub_.nodes());
  feed_.publish({attempt.run, attempt.round, false, opened_line(attempt)});
}

void RunService::send_openings(const std::set<NodeId>& children) {
  const RunMachine& machine = active_->machine;
  wire::Opening whole = transfer::opening_of(machine.attempt(), machine.plan(), *active_->schema);
  whole.continues = active_->continues;
  side_.send_openings(std::move(whole), machine.soft_deadline() - now(), machine.hard_deadline() - now(), children);
}

void RunService::carry_out(const SetTimer& effect) {
  timer_.expires_after(std::max(Duration(0), effect.at - now()));
  timer_.async_wait(boost::asio::bind_executor(runtime_.strand, [this](const boost::system::error_code& error) {
    if (!error && active_) carry_out(active_->machine.tick(now()));
  }));
}

void RunService::carry_out(const Finalise& effect) {
  side_.lane().push([this, effect] { return do_finalise(effect); });
}

net::Awaitable<void> RunService::do_finalise(Finalise effect) {
  if (!is_due(effect.step)) co_return;
  FinaliseInput input{effect.record,      active_->schema,          {active_->slot, active_->slot->bytes()},
                      active_->optimizer, active_->optimizer_state, active_->machine.plan().sum_digest};
  net::PoolParallel parallel(runtime_.pool);
  Result<NextModel> next =
      co_await runtime_.pool.run([&] { return finalise(parallel, side_.sum().node(), models_, std::move(input)); });
  if (!is_due(effect.step)) co_return;
  if (!next.ok()) {
    round_log().error("the round could not be finalised", {{"reason", next.error().to_string()}});
    storage_failed(effect.step, "models", next.error());
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
  row.run = record.run;
  row.round = record.round;
  row.attempt = record.attempt;
  row.contributors = record.contributors;
  row.refusals = record.refusals;
  row.participants_count = record.participant_count();
  row.model = record.model.digest;
  row.master = record.model.digest;
  row.optimizer = next_->optimizer_file;
  row.sum_digest = next_->sum_digest;
  row.bytes_up = hub_.payload_bytes_in() - bytes_in_before_;
  row.bytes_down = hub_.payload_bytes_out() - bytes_out_before_;
  row.metrics = mean_metrics(record.contributors);
  row.committed_at = runtime_.clock.wall_now();
  row.duration_ms =
      static_cast<std::uint64_t>(std::chrono::duration_cast<std::chrono::milliseconds>(now() - round_opened_).count());
  const Status recorded = co_await runtime_.pool.run([this, &row] { return journal_.commit(row); });
  if (!is_due(effect.step)) co_return;
  if (!recorded.ok()) {
    storage_failed(effect.step, "journal", recorded.error());
    co_return;
  }
  active_->optimizer_state = std::move(next_->optimizer_state);
  active_->slot->abandon();
  active_->slot = std::make_shared<tree::ModelSlot>(runtime_.strand, next_->ref, *active_->schema, next_->bytes);
  next_.reset();
  side_.counts().rounds_committed.add();
  pace_report_.round_closed(active_->machine.pace(), record.contributors);
  side_.counts().contributions_counted.add(static_cast<double>(record.contributors.size()));
  side_.counts().contributions_late.add(static_cast<double>(record.late.size()));
  side_.counts().round_seconds.observe(static_cast<double>(row.duration_ms) / 1000.0);
  round_log().info("round committed", {{"contributors", record.contributors.size()},
                                       {"late", record.late.size()},
                                       {"refused", record.refusals.size()},
                                       {"weight", record.contributors.total_weight()},
                                       {"ms", row.duration_ms},
                                       {"model_sha256", to_hex(record.model.digest)}});
  feed_.publish(
      {row.run, row.round, false, committed_line(row, [this](NodeId node) { return registry_.book().name_of(node); })});
  models_failed({});
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
