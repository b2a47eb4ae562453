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
                       store::ModelStore& models, Registry& registry, Feed& feed, Epoch epoch)
    : runtime_(runtime),
      tasks_(tasks),
      journal_(journal),
      models_(models),
      registry_(registry),
      feed_(feed),
      epoch_(epoch),
      counts_(runtime.metrics),
      sum_(runtime),
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
  sum_.lane().stop();
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

transfer::Terms RunService::terms() const {
  const RunMachine& machine = active_->machine;
  const round::AttemptRecord& attempt = machine.attempt();
  return transfer::make_terms(machine.plan(), active_->schema->value_count(), active_->schema->integer_count(),
                              attempt.base.digest, attempt.scale_bits, active_->codec, active_->schema,
                              active_->slot->integers());
}

Result<transfer::Terms> RunService::admit(const transfer::UpdateHead& head) {
  if (!is_current(head.run, head.round))
    return Error{Code::kStale, "round " + std::to_string(head.round.value()) + " is not open"};
  FLUVIAL_TRY(registry_.book().check_quarantine(head.site));
  FLUVIAL_TRY(active_->machine.admit(head.site, head.lease, head.weight));
  watch_.begun(head.site, now());
  return terms();
}

Result<transfer::Terms> RunService::admit(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round))
    return Error{Code::kStale, "round " + std::to_string(head.round.value()) + " is not open"};
  const auto is_below = [&](SiteId site) { return branch(site) == head.child; };
  const auto admit = [&] { return active_->machine.admit(head.attempt, head.epoch, head.what.contributors); };
  const auto refuse = [&](const round::Refusal& conflict) { refused(head.run, head.round, conflict); };
  FLUVIAL_TRY(transfer::admit_partial(head, hub_->book(), is_below, admit, refuse));
  watch_.begun(head.child, now());
  return terms();
}

std::vector<SiteId> RunService::without(const transfer::PartialHead& head) {
  if (!is_current(head.run, head.round)) return {};
  return transfer::without(head, active_->machine.gather(), [&](SiteId site) { return branch(site) == head.child; });
}

NodeId RunService::branch(SiteId site) const { return registry_.book().branch(site); }

void RunService::arrived(transfer::StagedArrival arrival) {
  if (!is_current(arrival.run, arrival.round)) {
    hub_->send(arrival.child, transfer::receipt(arrival, Error{Code::kStale, "the round is closed"}));
    return;
  }
  counts_.updates_verified.add();
  if (arrival.chunks) counts_.update_bytes.add(static_cast<double>(arrival.chunks->total_bytes()));
  arrival.what.contributors.spend(watch_.verified(arrival.child, arrival.update() != nullptr, now()));
  const round::Arrival what = arrival.what;
  for (const round::Refusal& refusal : what.refusals) note_refusal(refusal);
  const std::uint64_t id = sum_.stage(std::move(arrival));
  carry_out(active_->machine.arrived(ArrivalId(id), what));
}

void RunService::refused(RunId run, RoundId round, const round::Refusal& refusal) {
  if (!is_current(run, round)) return;
  counts_.contribution_refused(code_name(refusal.error.code));
  note_refusal(refusal);
  carry_out(active_->machine.refused(refusal, now()));
}

void RunService::declined(NodeId child, const round::Decline& decline) {
  const round::Refusal& refusal = decline.refusal;
  if (!is_current(decline.run, decline.round) || branch(refusal.site) != child) return;  // not the sender's to say
  counts_.contribution_refused(code_name(refusal.error.code));
  note_refusal(refusal);
  carry_out(active_->machine.declined(decline.attempt, refusal, now()));
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
    sum_.drop_all();
    hub_->book().open(record.run, record.round);
    sum_.reset({terms().layout, active_->schema->integer_count(), record.scale_bits});
    watch_.opened(now());
  }
  if (record.attempt == AttemptId(1) || round_opened_ == TimePoint()) {  // the round is new to this process
    told_.clear();
    round_opened_ = now();
    bytes_in_before_ = hub_->payload_bytes_in();
    bytes_out_before_ = hub_->payload_bytes_out();
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
  if (attempt.attempt == AttemptId(1)) counts_.rounds_opened.add();
  counts_.attempts.add();
  counts_.round.set(static_cast<double>(attempt.round.value()));
  counts_.participants.set(static_cast<double>(attempt.participants.size()));
  pace_report_.round_opened(active_->machine.soft_deadline() - now());
  round_log().info("round open", {{"participants", attempt.participants.size()}, {"scale_bits", attempt.scale_bits}});
  send_openings(transfer::nodes_of(hub_->children()));
  feed_.publish({attempt.run, attempt.round, false, opened_line(attempt)});
}

void RunService::send_openings(const std::set<NodeId>& children) {
  const RunMachine& machine = active_->machine;
  wire::Opening whole = transfer::opening_of(machine.attempt(), machine.plan(), *active_->schema);
  using std::chrono::duration_cast;
  whole.soft_left = duration_cast<std::chrono::milliseconds>(machine.soft_deadline() - now());
  whole.hard_left = duration_cast<std::chrono::milliseconds>(machine.hard_deadline() - now());
  whole.continues = active_->continues;
  const auto way = [this](const round::Participant& participant) { return branch(participant.site); };
  for (auto& [child, opening] : transfer::cut_openings(whole, machine.gather(), told_, children, way)) {
    opening.received = hub_->book().received(child);
    hub_->send(child, wire::to_envelope(opening));
  }
}

void RunService::carry_out(const SetTimer& effect) {
  timer_.expires_after(std::max(Duration(0), effect.at - now()));
  timer_.async_wait(boost::asio::bind_executor(runtime_.strand, [this](const boost::system::error_code& error) {
    if (!error && active_) carry_out(active_->machine.tick(now()));
  }));
}

void RunService::carry_out(const Take& effect) {
  const TimePoint begun = now();
  sum_.take(effect.arrival.value(), [this, id = effect.arrival, begun](const transfer::StagedArrival& arrival,
                                                                       const Result<round::ContributorSet>& added) {
    if (!added.ok()) {
      round_log().error("the sum is given up: everybody is asked again",
                        {{"child", arrival.child}, {"reason", added.error().to_string()}});
      return carry_out(active_->machine.take_failed(id, added.error(), now()));
    }
    const Duration merge = now() - begun;
    counts_.merge_seconds.observe(std::chrono::duration<double>(merge).count());
    round::ContributorSet timed = *added;
    timed.spend({.merge = merge});
    hub_->send(arrival.child, transfer::receipt(arrival, Status{}));
    if (active_) carry_out(active_->machine.taken(id, timed, now()));
  });
}

void RunService::carry_out(const Release& effect) { sum_.release(effect.arrival.value()); }

void RunService::carry_out(const Drop& effect) {
  const tree::Sum::Staged arrival = sum_.drop(effect.arrival.value());
  if (!arrival) return;
  const bool partial = arrival->update() == nullptr;
  const std::vector<SiteId> without =
      partial ? active_->machine.gather().without(arrival->what.contributors) : std::vector<SiteId>{};
  hub_->send(arrival->child, transfer::receipt(*arrival, effect.error, without));
}

void RunService::carry_out(const Finalise& effect) {
  sum_.lane().push([this, effect] { return do_finalise(effect); });
}

net::Awaitable<void> RunService::do_finalise(Finalise effect) {
  if (!is_due(effect.step)) co_return;
  FinaliseInput input{effect.record,      active_->schema,          {active_->slot, active_->slot->bytes()},
                      active_->optimizer, active_->optimizer_state, active_->machine.plan().sum_digest};
  net::PoolParallel parallel(runtime_.pool);
  Result<NextModel> next =
      co_await runtime_.pool.run([&] { return finalise(parallel, sum_.node(), models_, std::move(input)); });
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
  row.bytes_up = hub_->payload_bytes_in() - bytes_in_before_;
  row.bytes_down = hub_->payload_bytes_out() - bytes_out_before_;
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
  counts_.rounds_committed.add();
  pace_report_.round_closed(active_->machine.pace(), record.contributors);
  counts_.contributions_counted.add(static_cast<double>(record.contributors.size()));
  counts_.contributions_late.add(static_cast<double>(record.late.size()));
  counts_.round_seconds.observe(static_cast<double>(row.duration_ms) / 1000.0);
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
  hub_->book().close();
  send_commits(effect.record, effect.last);
  if (model_committed_)
    model_committed_(active_->slot->ref(), {active_->slot, active_->slot->bytes()}, active_->schema);
  tasks_.spawn(runtime_.strand, "prune",
               prune(effect.record.run, effect.record.model.version, active_->machine.plan().models_kept));
}

void RunService::send_commits(const round::CommitRecord& record, bool last) {
  const wire::Commit whole{record.run,          record.round,    record.attempt, record.model,
                           record.contributors, record.refusals, last,           record.late};
  const auto via = [this](SiteId site) { return branch(site); };
  for (const auto& [child, commit] : transfer::cut_commits(whole, transfer::nodes_of(hub_->children()), via)) {
    hub_->send(child, wire::to_envelope(commit));
  }
}

net::Awaitable<void> RunService::prune(RunId run, ModelVersion last, std::uint64_t kept) {
  const Status pruned = co_await runtime_.pool.run([&] { return models_.prune(run, last, kept); });
  if (!pruned.ok()) runtime_.log.warn("old models could not be pruned", {{"reason", pruned.error().to_string()}});
}

}  // namespace fluvial::coordinator
