#include "coordinator/service/run_service.h"

#include <algorithm>
#include <set>
#include <utility>

#include "core/transfer/cut.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::coordinator {

RunService::RunService(tree::Runtime& runtime, net::TaskGroup& tasks, const Keeps& keeps, Registry& registry,
                       RunObserver& observer, tree::Hub& hub)
    : runtime_(runtime),
      registry_(registry),
      observer_(observer),
      hub_(hub),
      side_(runtime, *this, hub),
      roll_call_(registry, runtime.clock),
      members_(runtime, tasks, registry, observer, hub, side_, keeps.authorship, *this),
      steps_(runtime, tasks, {keeps.journal, keeps.models, keeps.signer, keeps.authorship}, observer, hub, side_,
             members_, roll_call_, *this),
      starter_(
          runtime, keeps.journal, keeps.models, steps_.health(), keeps.epoch, [this] { return active_run(); },
          [this](std::unique_ptr<ActiveRun> run) { activate(std::move(run)); }),
      commands_(runtime.strand),
      timer_(runtime.strand) {}

void RunService::stop() {
  members_.stop();
  timer_.cancel();
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
  told_ = steps_.state();
  side_.tell_all(told_);  // who is not drawn, too: workers wait for its end
  members_.taken_up();
}

// ---- what comes from the hub --------------------------------------------------------------------------------------

bool RunService::is_current(RunId run, RoundId round) const {
  return active_ && run == active_->machine.run() && round == active_->machine.last_committed().next();
}

bool RunService::takes(RunId run, RoundId round, bool is_update) const {
  return active_ && run == active_->machine.run() && active_->machine.takes(round, is_update);
}

round::MadeFrom RunService::made_from() const {
  const std::optional<round::Pass> open = active_->machine.pass();
  return open ? open->made_from() : round::MadeFrom{};
}

AttemptId RunService::open_attempt() const {
  return active_ && !active_->machine.is_between_rounds() ? active_->machine.attempt().attempt : AttemptId(0);
}

Result<transfer::Terms> RunService::terms(bool) {
  const RunMachine& machine = active_->machine;
  const round::AttemptRecord& attempt = machine.attempt();
  return transfer::make_terms(machine.plan(), active_->schema->value_count(), active_->schema->integer_count(),
                              attempt.base, attempt.scale_bits, active_->codec, active_->schema,
                              active_->slot->integers(), machine.lateness(), machine.pass());
}

Status RunService::may_take(const transfer::UpdateHead& head) const {
  FLUVIAL_TRY(registry_.book().check_quarantine(head.site));
  FLUVIAL_TRY(active_->machine.gather().check_mark(head.site, head.own_round()));
  return active_->machine.admit(head.site, head.lease, head.weight);
}

Status RunService::may_take(const transfer::PartialHead& head) const {
  return active_->machine.admit(head.round, head.attempt, head.epoch, head.what.contributors);
}

void RunService::heard(SiteId site) {
  if (active_) active_->machine.heard(site);
}

void RunService::reported(const round::NodeReport& report) {
  if (!active_) return;
  active_->machine.has_workers(report.node, report.workers > 0);  // of an aggregator nobody asks
  if (round::shows_work(report, active_->machine.opened_at())) active_->machine.heard(report.node);
}

void RunService::staged(ArrivalId arrival, const round::Arrival& what) {
  for (const round::Refusal& refusal : what.refusals) note_refusal(refusal);
  if (const auto staged = side_.sum().find(arrival.value())) are_accused(staged->child, what.refusals);
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
  are_accused(refusal.site, {refusal});  // by its own update
  carry_out(active_->machine.refused(refusal, now()));
}

void RunService::has_declined(AttemptId attempt, const round::Refusal& refusal) {
  note_refusal(refusal);
  carry_out(active_->machine.declined(attempt, refusal, now()));
}

void RunService::note_refusal(const round::Refusal& refusal) {
  observer_.site_refused(active_->machine.attempt(), refusal);
}

// Of a round that an update may still be of: what a site signed long ago has had its consequences.
void RunService::are_accused(NodeId by, const std::vector<round::Refusal>& conflicts) {
  const auto is_conflict = [](const round::Refusal& one) { return one.error.code == Code::kConflict; };
  if (std::ranges::none_of(conflicts, is_conflict)) return;  // as with nearly every arrival
  const RunMachine& machine = active_->machine;
  const RoundId open = machine.attempt().round;
  const std::optional<round::Lateness> late = machine.lateness();
  const std::uint64_t old = late ? std::uint64_t{late->staleness_max} + late->drift_max : 0;
  std::vector<round::Refusal> wanted;
  for (const round::Refusal& one : conflicts) {
    if (is_conflict(one) && one.own_round(open).value() + old >= open.value()) wanted.push_back(one);
  }
  members_.accused(by, machine.run(), open, std::move(wanted));
}

std::shared_ptr<tree::ModelSlot> RunService::model(const round::ModelRef& ref) {
  if (!active_) return nullptr;
  if (active_->slot->is_called(ref)) return active_->slot;
  if (active_->vector && active_->vector->is_called(ref)) return active_->vector;
  if (auto ahead = steps_.ahead(ref)) return ahead;
  return active_->overtaken.find(ref, now());
}

// ---- effects ------------------------------------------------------------------------------------------------------

void RunService::carry_out(Effects effects) {
  for (const Effect& effect : effects) {
    std::visit([this](const auto& one) { carry_out(one); }, effect);
  }
}

void RunService::carry_out(const OpenRound&) {
  if (made_from().pass == 0) {
    observer_.attempt_opened(active_->machine.attempt(), active_->machine.soft_deadline() - now());
    observer_.expects(active_->machine);
  }
  send_openings(hub_.nodes());
}

void RunService::send_openings(const std::set<NodeId>& children) {
  const RunMachine& machine = active_->machine;
  wire::Opening whole = transfer::opening_of(machine.attempt(), machine.plan(), *active_->schema);
  whole.continues = active_->continues;
  whole.order = active_->order;
  whole.late = machine.lateness();
  whole.pass = machine.pass();
  side_.send_openings(std::move(whole), machine.soft_deadline() - now(), machine.hard_deadline() - now(), children);
}

void RunService::carry_out(const SetTimer& effect) {
  timer_.after(effect.at - now(), [this] {
    if (active_) carry_out(active_->machine.tick(now()));
  });
}

void RunService::carry_out(const Take& effect) {
  if (const auto arrival = side_.sum().find(effect.arrival.value())) observer_.taking(active_->machine, *arrival);
  side_.take(effect.arrival, effect.admitted_on);
}

}  // namespace fluvial::coordinator
