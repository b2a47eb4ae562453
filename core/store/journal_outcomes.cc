// What became of a site's updates: the outcome of each, what counted last, and its share of a run.
#include <utility>

#include "core/store/journal.h"
#include "core/store/journal_retention.h"
#include "core/store/plan_json.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

Result<RoundId> last_to_enter(Database& database, RunId run, RoundId round) {
  RoundId until = round;
  FLUVIAL_TRY(database.query("SELECT plan FROM runs WHERE id = ?", {run}, [&](const SqlRow& row) -> Status {
    const Result<round::Plan> plan = plan_from_json(row.text(0));  // a run with another one cannot go on
    if (plan.ok() && late_is_next(*plan)) until = RoundId(round.value() + plan->staleness_max);
    return {};
  }));
  return until;
}

Result<bool> is_counted(Database& database, const Entered& rounds, SiteId site, const Digest& digest) {
  FLUVIAL_ASSIGN(const auto counted,
                 database.scalar("SELECT 1 FROM contributions WHERE run = ? AND round BETWEEN ? AND ? AND site = ? AND "
                                 "digest = ?",
                                 {rounds.run, rounds.own, rounds.until, site, digest}));
  return counted.has_value();
}

Result<Outcome> CoordinatorJournal::outcome(RunId run, RoundId round, SiteId site, const Digest& digest) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const auto status, database_->scalar("SELECT status FROM runs WHERE id = ?", {run}));
  if (!status) return Error{Code::kNotFound, "there is no run " + std::to_string(run.value())};
  const bool over = is_over(static_cast<RunStatus>(*status));
  FLUVIAL_ASSIGN(const RoundId until, last_to_enter(*database_, run, round));
  FLUVIAL_ASSIGN(const bool counted, is_counted(*database_, {run, round, until}, site, digest));
  if (counted) return Outcome::kCounted;
  FLUVIAL_ASSIGN(const auto committed,
                 database_->scalar("SELECT 1 FROM commits WHERE run = ? AND round = ?", {run, round}));
  if (!committed) {
    FLUVIAL_ASSIGN(const bool pruned, is_pruned(*database_, run, round));
    if (pruned) return outcome_of_pruned(*database_, run, round, site, digest);
    return over ? Outcome::kLate : Outcome::kPending;
  }
  bool refused = false;
  FLUVIAL_TRY(database_->query("SELECT code FROM refusals WHERE run = ? AND round BETWEEN ? AND ? AND site = ?",
                               {run, round, until, site}, [&](const SqlRow& row) -> Status {
                                 refused = refused || round::drops_update(static_cast<Code>(row.integer(0)));
                                 return {};
                               }));
  if (refused) return Outcome::kRefused;
  FLUVIAL_ASSIGN(const auto last,
                 database_->scalar("SELECT 1 FROM commits WHERE run = ? AND round >= ?", {run, until}));
  return over || last ? Outcome::kLate : Outcome::kPending;
}

Result<std::map<SiteId, round::Mark>> CoordinatorJournal::marks(RunId run) {
  const std::lock_guard lock(mutex_);
  std::map<SiteId, round::Mark> marks;
  FLUVIAL_TRY(database_->query("SELECT site, incarnation, submission FROM marks WHERE run = ?", {run},
                               [&](const SqlRow& row) -> Status {
                                 marks[row.id<SiteId>(0)] = {row.id<Incarnation>(1), row.number(2)};
                                 return {};
                               }));
  return marks;
}

Result<std::map<SiteId, SiteShare>> CoordinatorJournal::shares(RunId run) {
  const std::lock_guard lock(mutex_);
  std::map<SiteId, SiteShare> shares;
  FLUVIAL_ASSIGN(const RoundId until, last_to_enter(*database_, run, RoundId(0)));
  if (until == RoundId(0)) return shares;  // all are of their own round, and all contributions are not read for that
  FLUVIAL_TRY(database_->query(
      "SELECT site, count(*), sum(weight), sum(admitted_version > base_version), sum(admitted_version - base_version) "
      "FROM contributions WHERE run = ? GROUP BY site",
      {run}, [&](const SqlRow& row) -> Status {
        shares[row.id<SiteId>(0)] = {row.number(1), row.number(2), row.number(3), row.number(4)};
        return {};
      }));
  return shares;
}

}  // namespace fluvial::store
