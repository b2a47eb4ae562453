// What another history of the federation means to a site's store.
#include <algorithm>
#include <utility>

#include "core/store/lineage.h"
#include "core/store/site_rows.h"
#include "core/store/site_store.h"

namespace fluvial::store {

Result<round::Lineage> SiteStore::lineage() {
  const std::lock_guard lock(mutex_);
  return read_lineage(*database_);
}

Result<round::Standing> SiteStore::standing() {
  const std::lock_guard lock(mutex_);
  round::Standing standing;
  FLUVIAL_ASSIGN(const round::Lineage lineage, read_lineage(*database_));
  FLUVIAL_ASSIGN(const auto epoch, database_->scalar("SELECT epoch FROM site"));
  standing.history = round::current_of(lineage);
  standing.epoch = Epoch(static_cast<std::uint64_t>(epoch.value_or(0)));
  FLUVIAL_TRY(database_->query(
      "SELECT run, round, outcome, digest FROM outcomes UNION ALL SELECT run, round, ?, coalesce((SELECT "
      "digest FROM pending_passes AS later WHERE later.run = pending.run ORDER BY pass DESC LIMIT 1), digest) FROM "
      "pending ORDER BY run DESC, round DESC LIMIT ?",
      {static_cast<int>(Outcome::kPending), std::uint64_t{round::kKnownRoundsMax}}, [&](const SqlRow& row) -> Status {
        const auto outcome = static_cast<Outcome>(row.integer(2));
        round::KnownRound known{row.id<RunId>(0), row.id<RoundId>(1), outcome != Outcome::kPending, false, {}};
        if (!row.bytes(3).empty()) {  // an outcome of an earlier version has none
          FLUVIAL_ASSIGN(known.digest, row.digest(3));
          known.counted = outcome == Outcome::kCounted;
        }
        standing.rounds.push_back(known);
        return {};
      }));
  return standing;
}

// For one run, within a transaction; `files` gets those that no row names afterwards.
Result<PutAside> SiteStore::put_aside(RunId run, const round::Common& common, std::vector<std::string>& files) {
  PutAside aside{run, !common.has(run), {}, {}, {}, {}};
  FLUVIAL_ASSIGN(const ResidualRow old, residual_row(*database_, run));
  FLUVIAL_ASSIGN(const std::optional<PendingRow> pending, pending_row(*database_, run));
  std::set<std::string> sent;
  if (pending) {
    FLUVIAL_ASSIGN(const std::vector<PassRow> passes, pass_rows(*database_, *pending));
    sent = files_of(*pending, passes);
  }
  FLUVIAL_ASSIGN(const std::optional<LastOutcome> last, last_outcome_locked(run));
  std::vector<std::string> workers;
  FLUVIAL_TRY(database_->query("SELECT worker, round FROM worker_outcomes WHERE run = ?", {run},
                               [&](const SqlRow& row) -> Status {
                                 if (!common.has(run, row.id<RoundId>(1))) workers.push_back(row.text(0));
                                 return {};
                               }));
  for (const std::string& worker : workers) {
    FLUVIAL_TRY(database_->run("DELETE FROM worker_outcomes WHERE run = ? AND worker = ?", {run, worker}));
  }
  if (last && !common.has(run, last->round)) {
    aside.undone = last->round;
    FLUVIAL_TRY(database_->run("DELETE FROM outcomes WHERE run = ?", {run}));
  }
  aside.residual = old.info;
  const std::set<std::string> old_files = old.files();
  if (aside.run_lost) {
    FLUVIAL_TRY(database_->run("DELETE FROM residuals WHERE run = ?", {run}));
    FLUVIAL_TRY(database_->run("DELETE FROM pending_passes WHERE run = ?", {run}));
    FLUVIAL_TRY(database_->run("DELETE FROM pending WHERE run = ?", {run}));
    files.insert(files.end(), old_files.begin(), old_files.end());
    files.insert(files.end(), sent.begin(), sent.end());
  } else if (pending && !common.has(run, pending->info.start.round)) {
    const PendingStart& start = pending->info.start;
    PendingRow undone = *pending;
    undone.info.start.late_factor = 1;  // a restore took its round away: it was not too late for every round
    ResidualRow now = whole_of(undone, old.info.age_rounds + 1);
    aside.dropped = beyond(now.info, start.bounds);  // like any late update
    if (!aside.dropped.empty()) now = {};
    aside.late = start.round;
    aside.residual = now.info;
    FLUVIAL_TRY(write_outcome(run, start.round, Outcome::kLate, {}, now, start.workers));
    files.insert(files.end(), old_files.begin(), old_files.end());
    for (const std::string& name : sent) {
      if (name != now.file) files.push_back(name);
    }
  }
  return aside;
}

Result<std::vector<PutAside>> SiteStore::enter(const round::Lineage& lineage, Epoch lease) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(round::check_lineage(lineage));
  FLUVIAL_ASSIGN(const round::Lineage before, read_lineage(*database_));
  FLUVIAL_ASSIGN(const auto heard, database_->scalar("SELECT epoch FROM site"));
  const Epoch known(static_cast<std::uint64_t>(heard.value_or(0)));
  const bool same = round::current_of(before) == round::current_of(lineage);
  std::vector<PutAside> all;
  if (same && lease <= known) return all;
  if (!same && round::began_of(lineage) <= known) return round::older_history(lineage, known);
  std::vector<RunId> runs;
  FLUVIAL_TRY(database_->query(
      "SELECT run FROM pending UNION SELECT run FROM residuals UNION SELECT run FROM outcomes UNION SELECT run FROM "
      "worker_outcomes ORDER BY run",
      {}, [&](const SqlRow& row) -> Status {
        runs.push_back(row.id<RunId>(0));
        return {};
      }));
  std::vector<std::string> files;
  FLUVIAL_TRY(database_->transact([&]() -> Status {
    FLUVIAL_TRY(database_->run("UPDATE site SET epoch = max(epoch, ?)", {std::max(lease, round::began_of(lineage))}));
    if (same) return {};
    const round::Common common(before, lineage);
    for (const RunId run : runs) {
      FLUVIAL_ASSIGN(PutAside aside, put_aside(run, common, files));
      if (aside.run_lost || aside.late || aside.undone) all.push_back(std::move(aside));
    }
    return replace_lineage(*database_, lineage);
  }));
  for (const std::string& name : files) retire(name);
  return all;
}

}  // namespace fluvial::store
