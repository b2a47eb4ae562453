// What the checks are told of what the coordinator does.
#include <algorithm>
#include <utility>

#include "core/digest/sha256.h"
#include "simulator/roles/coordinator.h"

namespace fluvial::simulator {
namespace {

FlatSum flat(const tree::Sum& sum) {
  const transfer::NodeSum& node = sum.node();
  return {node.accumulator().sum(), node.integers(), node.shape().scale_bits};
}

}  // namespace

void CoordinatorRole::run_taken_up(const coordinator::RunMachine& machine) {
  if (is_dead()) return;
  {
    const Disk::Inspection inspection(world().disk(host()));
    const Result<std::vector<store::RunRow>> runs = journal_->runs();
    if (!runs.ok()) return;
    for (const store::RunRow& row : *runs) cast_.checks().rounds().run_continued(row);
  }
  cast_.checks().run_status(run_status_name(machine.status()), machine.reason());
  if (machine.status() == coordinator::RunStatus::kPaused) spawn("attend", attend(machine.run()));
  const SharedBytes& state = root_->runs().active()->codec_state;
  cast_.checks().rounds().state_loaded(machine.run(), {state.bytes, sha256(state.bytes)});
  // What the last commit refers to; another one, if it is tampered with.
  auto* run = const_cast<coordinator::ActiveRun*>(root_->runs().active());  // NOLINT: on purpose
  std::vector<float> state_of_optimizer = *run->optimizer_state;
  cast_.tamper().optimizer_loaded(&state_of_optimizer);
  run->optimizer_state = std::make_shared<const std::vector<float>>(std::move(state_of_optimizer));
}

void CoordinatorRole::recording(const round::AttemptRecord& row) {
  if (!is_dead()) cast_.checks().rounds().attempt_decided(row);
}

void CoordinatorRole::recorded(const round::AttemptRecord& row) {
  if (is_dead()) return;
  round::AttemptRecord told = row;
  if (row.attempt > AttemptId(1)) cast_.tamper().calls(book().connected_sites(), &told.participants);
  cast_.checks().rounds().attempt_recorded(told);
  cast_.round_log().recorded(row.round, row.participants.size(), world().scheduler().now());
}

void CoordinatorRole::taking(const coordinator::RunMachine& machine, const transfer::StagedArrival& arrival) {
  if (is_dead()) return;
  round::ContributorSet contributors;  // as they came
  for (const auto& [site, entry] : arrival.what.contributors.entries()) {
    round::Contribution came = entry;
    if (const auto found = brought_.find({site, entry.digest}); found != brought_.end()) came.lease = found->second;
    const Status added = contributors.add(std::move(came));
    FLUVIAL_CHECK(added.ok(), "the same set");
  }
  cast_.checks().rounds().taking(machine.run(), contributors, machine.gather().participants());
}

// What a tampered coordinator's machine is shown is not what came (fence.h).
void CoordinatorRole::brought(const round::ContributorSet& contributors) {
  for (const auto& [site, entry] : contributors.entries()) brought_[{site, entry.digest}] = entry.lease;
}

void CoordinatorRole::committing(const store::CommitRow& row, const coordinator::NextModel& next) {
  if (is_dead()) return;
  cast_.tamper().optimizer_finalised(next.optimizer_state);
  const round::Schema& schema = *root_->runs().active()->schema;
  std::vector<float> values(schema.value_count());
  std::vector<std::int64_t> integers(schema.integer_count());
  round::split_model(schema, next.bytes.bytes, values, integers);
  std::optional<NamedBytes> state;
  if (next.codec_state) state = named(*next.codec_state);
  cast_.checks().rounds().committing(row, flat(root_->runs().sum()), {values, integers}, state);
  cast_.committing(row.record, values);
}

void CoordinatorRole::pass_over(const coordinator::Reduce& reduce, const round::AttemptRecord& attempt,
                                const coordinator::NamedVector& mean, Duration) {
  if (is_dead()) return;
  cast_.checks().rounds().pass_over(
      {NodeId(0), attempt.run, attempt.round, attempt.epoch, attempt.attempt, reduce.pass}, reduce.contributors,
      flat(root_->runs().sum()), named(mean));
}

// By what its bytes are, whatever it is called.
NamedBytes CoordinatorRole::named(const coordinator::NamedVector& vector) {
  const Digest digest = sha256(vector.bytes.bytes);
  if (vector.ref != round::VectorRef{digest, vector.bytes.bytes.size()}) {
    world().violate("exact_mean", "a vector that travels down has another digest than its bytes");
  }
  return {vector.bytes.bytes, digest};
}

// What finalise() refuses is looked at, too.
void CoordinatorRole::step_failed(const round::AttemptRecord& attempt, coordinator::DiskPart part, const Error&) {
  if (is_dead()) return;
  if (part == coordinator::DiskPart::kJournal) {
    const std::optional<Error> fault = journal_->fault();
    // A full disk has refused it. After any other failure only a restart shows what is on the disk.
    if (!fault || fault->code == Code::kResourceExhausted) cast_.checks().rounds().not_committed(attempt.run);
  }
  if (part != coordinator::DiskPart::kModels) return;
  const std::optional<round::Pass> pass = machine()->pass();
  cast_.checks().rounds().sum_sealed(
      {NodeId(0), attempt.run, attempt.round, attempt.epoch, attempt.attempt, pass ? pass->index : 0},
      machine()->gather().held(), flat(root_->runs().sum()));
}

void CoordinatorRole::committed(const store::CommitRow& row, const round::Pace&) {
  if (is_dead()) return;
  cast_.checks().rounds().committed(row);
  check_timeline(row.record.run, RoundId(row.record.round.value() - 1));  // of the last one all has been told
  cast_.round_log().committed(row.record.round, row.record.contributors.size(), world().scheduler().now());
}

void CoordinatorRole::quarantined(SiteId site, const std::string& reason) {
  cast_.checks().accused(site, cast_.is_dishonest(site), reason);
}

void CoordinatorRole::quarantine_recorded(SiteId site) {
  if (is_dead()) return;
  cast_.checks().rounds().quarantined(site);
  if (cast_.tamper().forgets_quarantine()) spawn("forget", lift_quarantine(site));
}

net::Awaitable<void> CoordinatorRole::lift_quarantine(SiteId site) {
  const Result<NodeId> lifted = co_await root_->registry().clear(book().name_of(site));
  if (lifted.ok()) root_->runs().members().quarantine_changed();
}

void CoordinatorRole::status_told(RunId run, coordinator::RunStatus status, const std::string& reason) {
  if (is_dead()) return;
  const bool ends = is_over(status);
  cast_.checks().run_status(run_status_name(status), reason);
  if (ends) {
    cast_.checks().run_ended(run);
    cast_.checks().rounds().not_committed(run);  // the journal has taken the end: what it refused before was no commit
    cast_.checks().rounds().told(run, status);
    spawn("attend end", attend_end());
  }
  if (status != coordinator::RunStatus::kPaused) return;
  const round::Gather& gather = machine()->gather();
  const auto gone =
      std::ranges::count_if(gather.refusals(), [](const auto& r) { return round::drops_update(r.error.code); });
  const std::size_t left = gather.participant_count() + substitutes_left();
  // Of two machines with one identity each keeps the other out, until a person stops one.
  if (left < machine()->plan().quorum + static_cast<std::size_t>(gone) || cast_.has_clones()) {
    cast_.checks().round_is_hopeless();
  }
  spawn("attend", attend(run));
}

}  // namespace fluvial::simulator
