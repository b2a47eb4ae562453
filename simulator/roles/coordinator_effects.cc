// What the run's machine decides.
#include <algorithm>
#include <chrono>
#include <utility>

#include "core/digest/sha256.h"
#include "core/transfer/cut.h"
#include "core/wire/mapping.h"
#include "simulator/roles/coordinator.h"
#include "simulator/roles/fence.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kAttendance = std::chrono::seconds(3);  // how soon somebody looks after a paused run

store::RunStatus row_of(coordinator::RunStatus status) {
  switch (status) {
    case coordinator::RunStatus::kRunning: return store::RunStatus::kRunning;
    case coordinator::RunStatus::kPaused: return store::RunStatus::kPaused;
    case coordinator::RunStatus::kStopped: return store::RunStatus::kStopped;
    case coordinator::RunStatus::kDone: return store::RunStatus::kDone;
  }
  return store::RunStatus::kPaused;
}

struct ModelParts {
  std::vector<float> values;
  std::vector<std::int64_t> integers;
};

ModelParts parts_of(const round::Schema& schema, ByteSpan model) {
  ModelParts parts{std::vector<float>(schema.value_count()), std::vector<std::int64_t>(schema.integer_count())};
  round::split_model(schema, model, parts.values, parts.integers);
  return parts;
}

}  // namespace

void CoordinatorRole::carry_out(const coordinator::Effects& effects) {
  for (const coordinator::Effect& effect : effects) {
    if (is_dead()) return;
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void CoordinatorRole::carry_out(const coordinator::RecordAttempt& effect) {
  const round::AttemptRecord& record = effect.record;
  if (effect.sum_anew) {
    work_.drop_all();
    children_.book().open(record.run, record.round);
    work_.reset({terms().layout, schema_->integer_count(), record.scale_bits});
    watch_.opened(now());
  }
  if (record.attempt == AttemptId(1)) told_.clear();
  if (dies("attempt")) return;
  store::AttemptRow row{record.run,          record.round,      record.attempt,    record.epoch,
                        record.participants, record.scale_bits, record.base.digest};
  if (!effect.sum_anew) cast_.tamper().calls(book_.connected_sites(), &row.participants);
  const Status recorded = journal_->open_attempt(row);
  if (recorded.ok()) {
    cast_.checks().rounds().attempt_recorded(row);
    cast_.round_log().recorded(row.round, row.participants.size(), cast_.world().scheduler().now());
  }
  if (dies("attempt recorded")) return;
  cast_.world().after_disk(host_, [this, recorded, step = effect.step] {
    if (!recorded.ok()) return carry_out(machine().step_failed(step, recorded.error()));
    for (const round::Refusal& refusal : book_.barred_among(machine().attempt().participants)) {
      carry_out(machine().refused(refusal, now()));
    }
    carry_out(machine().attempt_recorded(step, now()));
  });
}

void CoordinatorRole::carry_out(const coordinator::OpenRound&) {
  send_openings(transfer::nodes_of(children_.children()));
}

void CoordinatorRole::send_openings(const std::set<NodeId>& children) {
  const round::AttemptRecord& attempt = machine().attempt();
  wire::Opening whole = transfer::opening_of(attempt, machine().plan(), *schema_);
  using std::chrono::duration_cast;
  whole.soft_left = duration_cast<std::chrono::milliseconds>(machine().soft_deadline() - now());
  whole.hard_left = duration_cast<std::chrono::milliseconds>(machine().hard_deadline() - now());
  whole.continues = continues_;
  for (auto& [child, opening] : transfer::cut_openings(whole, machine().gather(), told_, children, way())) {
    if (dies("open")) return;
    opening.received = children_.book().received(child);
    cast_.checks().rounds().opening_sent(attempt.run, attempt.round, attempt.attempt, attempt.epoch);
    children_.send(child, wire::to_envelope(opening));
  }
}

void CoordinatorRole::carry_out(const coordinator::TellMoved& effect) { tell_moved(effect.sites); }

// The children that the sites are below now, and those that were told of them before.
void CoordinatorRole::tell_moved(const std::vector<SiteId>& sites) {
  std::set<NodeId> nodes;
  for (const NodeId node : told_.children_of(sites)) nodes.insert(node);
  for (const SiteId site : sites) {
    if (machine().gather().is_participant(site)) nodes.insert(book_.branch(site));
  }
  send_openings(nodes);
}

void CoordinatorRole::node_moved(NodeId node, Epoch lease) {
  if (!machine_) return;
  if (machine().gather().is_participant(node)) {
    carry_out(machine().leases_changed({{node, lease}}));
  } else if (machine().is_open()) {  // an aggregator, with everybody below it
    std::vector<SiteId> sites;
    for (const round::Participant& participant : machine().attempt().participants) {
      if (book_.branch(participant.site) != NodeId(0)) sites.push_back(participant.site);
    }
    tell_moved(sites);
  }
  members_changed_below({});  // whoever was here by the way of before is not
}

void CoordinatorRole::carry_out(const coordinator::SetTimer& effect) {
  cast_.world().cancel(timer_);
  timer_ = cast_.world().at(host_, effect.at, [this] { carry_out(machine().tick(now())); });
}

void CoordinatorRole::carry_out(const coordinator::Take& effect) {
  cast_.checks().rounds().taking(machine().run(), work_.staged(effect.arrival.value()).what.contributors,
                                 machine().gather().participants());
  work_.take(effect.arrival.value(),
             [this, id = effect.arrival, begun = now()](const transfer::StagedArrival& arrival,
                                                        const Result<round::ContributorSet>& added) {
               if (!added.ok()) return carry_out(machine().take_failed(id, added.error(), now()));
               children_.send(arrival.child, transfer::receipt(arrival, Status{}));
               round::ContributorSet timed = shown_of(cast_.tamper(), machine().gather(), *added);
               timed.spend({.merge = now() - begun});
               carry_out(machine().taken(id, timed, now()));
             });
}

void CoordinatorRole::carry_out(const coordinator::Release& effect) { work_.release(effect.arrival.value()); }

void CoordinatorRole::carry_out(const coordinator::Drop& effect) {
  const NodeWork::Staged arrival = work_.drop(effect.arrival.value());
  if (!arrival) return;
  const std::vector<SiteId> both = machine().gather().without(arrival->what.contributors);
  children_.send(arrival->child, transfer::receipt(*arrival, effect.error, both));
}

Result<coordinator::NextModel> CoordinatorRole::finalise(const round::CommitRecord& record) {
  // What finalise() refuses is looked at, too.
  cast_.checks().rounds().sum_sealed(NodeId(0), record.run, record.round, record.contributors,
                                     work_.flat(machine().attempt().scale_bits));
  coordinator::FinaliseInput input{record,     schema_,          slot_->shared(),
                                   optimizer_, optimizer_state_, machine().plan().sum_digest};
  return coordinator::finalise(serial_, work_.node(), *models_, std::move(input));
}

void CoordinatorRole::carry_out(const coordinator::Finalise& effect) {
  work_.lane().push(work_.cost_of_finalise(), [this, step = effect.step, record = effect.record] {
    if (dies("finalise")) return;
    Result<coordinator::NextModel> next = finalise(record);
    if (next.ok()) cast_.tamper().optimizer_finalised(next->optimizer_state);
    if (dies("finalised")) return;
    cast_.world().after_disk(host_,
                             [this, step, next = std::make_shared<Result<coordinator::NextModel>>(std::move(next))] {
                               if (!next->ok()) return carry_out(machine().step_failed(step, next->error()));
                               next_ = std::move(**next);
                               carry_out(machine().finalised(step, next_->ref, now()));
                             });
  });
}

void CoordinatorRole::carry_out(const coordinator::RecordCommit& effect) {
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
  row.committed_at = cast_.world().clock(host_).wall_now();
  const ModelParts model = parts_of(*schema_, next_->bytes.bytes);
  if (dies("commit")) return;
  cast_.checks().rounds().committing(row, work_.flat(machine().attempt().scale_bits), {model.values, model.integers});
  const Status recorded = journal_->commit(row);
  if (recorded.ok()) {
    cast_.checks().rounds().committed(row);
    cast_.round_log().committed(row.round, row.contributors.size(), cast_.world().scheduler().now());
  }
  if (dies("committed")) return;
  cast_.world().after_disk(host_, [this, recorded, step = effect.step] {
    if (!recorded.ok()) return carry_out(machine().step_failed(step, recorded.error()));
    optimizer_state_ = std::move(next_->optimizer_state);
    slot_ = std::make_shared<ModelSlot>(next_->ref, *schema_, next_->bytes);
    next_.reset();
    const std::vector<NodeId> home = book_.send_home(now());
    if (!home.empty()) carry_out(machine().sites_changed(book_.connected_sites(), now()));
    carry_out(machine().commit_recorded(step, now()));
    if (!is_dead()) dismiss(home);  // after they have been told of the commit
  });
}

void CoordinatorRole::carry_out(const coordinator::Publish& effect) {
  const round::CommitRecord& record = effect.record;
  children_.book().close();
  const wire::Commit whole{record.run,          record.round,    record.attempt, record.model,
                           record.contributors, record.refusals, effect.last,    record.late};
  const auto via = [this](SiteId site) { return book_.branch(site); };
  for (const auto& [child, commit] : transfer::cut_commits(whole, transfer::nodes_of(children_.children()), via)) {
    if (dies("publish")) return;
    cast_.checks().rounds().commit_sent(record.run, record.round, record.model.digest);
    children_.send(child, wire::to_envelope(commit));
  }
  const Status pruned = models_->prune(record.run, record.model.version, machine().plan().models_kept);
  (void)pruned.ok();  // a file too many
  const std::uint64_t kept = cast_.scenario().federation.keep_rounds;
  if (kept == 0 || dies("prune")) return;
  (void)journal_->prune_rounds({kept, {}}).ok();  // a round too many; or the journal has failed
  if (journal_->fault()) attend_journal();
}

void CoordinatorRole::carry_out(const coordinator::RecordStatus& effect) {
  if (dies("status")) return;
  const Status kept = journal_->set_run_status(machine().run(), row_of(effect.status), effect.reason);
  if (dies("status recorded")) return;
  cast_.world().after_disk(host_, [this, kept, step = effect.step] {
    carry_out(kept.ok() ? machine().status_recorded(step, now()) : machine().status_failed(step, kept.error(), now()));
  });
}

void CoordinatorRole::carry_out(const coordinator::TellStatus& effect) {
  const RunId run = machine().run();
  const bool ends = effect.status == coordinator::RunStatus::kDone || effect.status == coordinator::RunStatus::kStopped;
  if (ends) cast_.checks().run_ended(run);
  cast_.checks().run_status(coordinator::status_name(effect.status), effect.reason);
  v1::Envelope message;
  message.mutable_run_state()->set_run(run.value());
  message.mutable_run_state()->set_state(std::string(coordinator::status_name(effect.status)));
  message.mutable_run_state()->set_reason(effect.reason);
  std::vector<NodeId> nodes;
  for (const auto& [node, child] : children_.children()) nodes.push_back(node);
  for (const NodeId node : nodes) children_.send(node, message);
  if (ends) {
    work_.drop_all();
    children_.book().close();
    cast_.checks().rounds().told(run, row_of(effect.status));
    attend_end();
  }
  if (effect.status != coordinator::RunStatus::kPaused) return;
  const round::Gather& gather = machine().gather();
  const auto gone =
      std::ranges::count_if(gather.refusals(), [](const auto& r) { return round::drops_update(r.error.code); });
  const std::size_t left = gather.participant_count() + substitutes_left();
  // Of two machines with one identity each keeps the other out, until a person stops one.
  if (left < machine().plan().quorum + static_cast<std::size_t>(gone) || cast_.has_clones()) {
    cast_.checks().round_is_hopeless();
  }
  attend();
}

// Somebody reads the reason, mends what is to be mended, and resumes the run.
void CoordinatorRole::attend() {
  cast_.world().after(host_, kAttendance, [this] {
    if (machine().status() == coordinator::RunStatus::kPaused) carry_out(machine().resume(now()));
  });
}

// A journal that does not take what the person wants wants a restart. What cannot be wanted of a run that has ended
// does not.
void CoordinatorRole::carry_out(const coordinator::Answer& effect) {
  if (!effect.result.ok() && effect.result.error().code != Code::kFailedPrecondition)
    cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
}

}  // namespace fluvial::simulator
