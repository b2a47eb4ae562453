// What a site's store carries from one run to the next.
#include <algorithm>
#include <utility>

#include "core/store/site_rows.h"
#include "core/store/site_store.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

Result<std::vector<Unspent>> SiteStore::begin_run(RunId run, std::span<const RunId> continues,
                                                  std::uint64_t value_count) {
  const std::lock_guard lock(mutex_);
  std::vector<Unspent> unspent;
  FLUVIAL_ASSIGN(const auto rows, residuals_before(*database_, run));
  for (const auto& [before, row] : rows) unspent.insert(unspent.begin(), {before, row.info});  // the newest first
  FLUVIAL_ASSIGN(const auto pending, database_->scalar("SELECT max(run) FROM pending WHERE run < ?", {run}));
  if (pending) {
    return Error{Code::kFailedPrecondition, "run " + std::to_string(*pending) + ": its submission has no outcome yet"};
  }
  FLUVIAL_ASSIGN(const auto before, database_->scalar("SELECT max(run) FROM outcomes WHERE run < ?", {run}));
  if (unspent.empty() && !before) return unspent;

  FLUVIAL_ASSIGN(const ResidualRow own, residual_row(*database_, run));
  const auto heir = std::ranges::find_if(unspent, [&](const Unspent& one) {
    return own.info.zero && one.residual.value_count == value_count &&
           std::ranges::find(continues, one.run) != continues.end();
  });
  if (heir != unspent.end()) heir->carried_over = true;
  FLUVIAL_TRY(database_->transact([&]() -> Status {
    if (heir != unspent.end()) {
      FLUVIAL_TRY(database_->run("UPDATE residuals SET run = ? WHERE run = ?", {run, heir->run}));
    }
    FLUVIAL_TRY(database_->run("DELETE FROM residuals WHERE run < ?", {run}));
    FLUVIAL_TRY(database_->run("DELETE FROM worker_outcomes WHERE run < ?", {run}));
    return database_->run("DELETE FROM outcomes WHERE run < ?", {run});
  }));
  for (const Unspent& one : unspent) {
    if (one.carried_over) continue;
    for (const std::string& name : rows.at(one.run).files()) retire(name);
  }
  return unspent;
}

Result<std::map<RunId, std::vector<WorkerOutcome>>> SiteStore::worker_outcomes() {
  const std::lock_guard lock(mutex_);
  std::map<RunId, std::vector<WorkerOutcome>> found;
  FLUVIAL_TRY(database_->query("SELECT run, worker, round, outcome FROM worker_outcomes ORDER BY run, worker", {},
                               [&](const SqlRow& row) -> Status {
                                 found[row.id<RunId>(0)].push_back(
                                     {row.text(1), {row.id<RoundId>(2), static_cast<Outcome>(row.integer(3))}});
                                 return {};
                               }));
  return found;
}

}  // namespace fluvial::store
