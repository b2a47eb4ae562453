// What became of a site's updates: the outcome of each, the newest round that is decided, and its share of a run.
#include <algorithm>

#include "core/store/journal.h"
#include "core/store/journal_retention.h"
#include "core/store/plan_json.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

Result<RoundId> last_to_enter(Database& database, RunId run, RoundId round) {
  RoundId until = round;
  FLUVIAL_TRY(database.query("SELECT plan FROM runs WHERE id = ?", {run}, [&](const SqlRow& row) -> Status {
    const Result<round::Plan> plan = plan_from_json(row.text(0));  // a run with another one cannot go on
    if (plan.ok() && late_is_next(*plan)) {
      until = std::max(round, RoundId(std::min(round.value() + plan->staleness_max, plan->rounds)));
    }
    return {};
  }));
  return until;
}

// Row by row: the key has the site behind the round, so a range of rounds would be read whole. Steps are counted, since
// a peer may ask about any number.
Result<bool> is_counted(Database& database, const Entered& rounds, SiteId site, const Digest& digest) {
  for (std::uint64_t later = 0; later <= rounds.until.value() - rounds.own.value(); ++later) {
    const RoundId round(rounds.own.value() + later);
    FLUVIAL_ASSIGN(
        const auto counted,
        database.scalar("SELECT 1 FROM contributions WHERE run = ? AND round = ? AND site = ? AND digest = ?",
                        {rounds.run, round, site, digest}));
    if (counted) return true;
  }
  return false;
}

namespace {

// Whether it was below this round. `share`: what the update gives to the run; nothing if it was refused.
Result<bool> raise_mark(Database& database, RunId run, SiteId site, RoundId own, const SiteShare& share) {
  FLUVIAL_TRY(database.run(
      "INSERT INTO marks VALUES (?, ?, ?, ?, ?, ?, ?) ON CONFLICT (run, site) DO UPDATE SET "
      "own_round = excluded.own_round, rounds = rounds + excluded.rounds, weight = weight + excluded.weight, "
      "stale = stale + excluded.stale, staleness = staleness + excluded.staleness "
      "WHERE marks.own_round < excluded.own_round",
      {run, site, own, share.rounds, share.weight, share.stale, share.staleness}));
  return database.changes() == 1;
}

SiteShare share_of(const round::Contribution& entry) {
  return {1, entry.weight, entry.staleness() > 0 ? std::uint64_t{1} : std::uint64_t{0}, entry.staleness()};
}

// Whether one of these rounds, as far as they are not pruned, refused what the site made for the first of them, so that
// the site drops it.
Result<bool> is_refused(Database& database, const Entered& rounds, SiteId site) {
  bool refused = false;
  for (std::uint64_t later = 0; !refused && later <= rounds.until.value() - rounds.own.value(); ++later) {
    const RoundId round(rounds.own.value() + later);
    FLUVIAL_TRY(database.query("SELECT code, own_round FROM refusals WHERE run = ? AND round = ? AND site = ?",
                               {rounds.run, round, site}, [&](const SqlRow& row) -> Status {
                                 const round::Refusal refusal{
                                     site, {static_cast<Code>(row.integer(0)), {}}, row.id<RoundId>(1)};
                                 const bool same = refusal.own_round(round) == rounds.own;
                                 refused = same && round::drops_update(refusal.error.code);
                                 return {};
                               }));
  }
  return refused;
}

// Whether nothing that the site made for this round can count any more.
Result<bool> is_decided(Database& database, const Entered& rounds, SiteId site) {
  FLUVIAL_ASSIGN(const auto mark, database.scalar("SELECT 1 FROM marks WHERE run = ? AND site = ? AND own_round >= ?",
                                                  {rounds.run, site, rounds.own}));
  if (mark) return true;
  FLUVIAL_ASSIGN(const auto last, database.scalar("SELECT 1 FROM commits WHERE run = ? AND round >= ? LIMIT 1",
                                                  {rounds.run, rounds.until}));
  return last.has_value();
}

}  // namespace

Status raise_marks(Database& database, const round::CommitRecord& commit) {
  for (const auto& [site, entry] : commit.contributors.entries()) {
    const RoundId own = entry.own_round(commit.round);
    FLUVIAL_ASSIGN(const bool is_new, raise_mark(database, commit.run, site, own, share_of(entry)));
    if (is_new) continue;
    return Error{Code::kFailedPrecondition, "run " + std::to_string(commit.run.value()) + " round " +
                                                std::to_string(commit.round.value()) + ": what site " +
                                                std::to_string(site.value()) + " made for round " +
                                                std::to_string(own.value()) + " was decided in an earlier round"};
  }
  for (const round::Refusal& refusal : commit.refusals) {
    if (!round::drops_update(refusal.error.code)) continue;
    FLUVIAL_TRY(raise_mark(database, commit.run, refusal.site, refusal.own_round(commit.round), {}));
  }
  return {};
}

Result<Outcome> CoordinatorJournal::outcome(RunId run, RoundId round, SiteId site, const Digest& digest) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const auto status, database_->scalar("SELECT status FROM runs WHERE id = ?", {run}));
  if (!status) return Error{Code::kNotFound, "there is no run " + std::to_string(run.value())};
  const bool over = is_over(static_cast<RunStatus>(*status));
  FLUVIAL_ASSIGN(const bool in_its_own, is_counted(*database_, {run, round, round}, site, digest));
  if (in_its_own) return Outcome::kCounted;  // as nearly always: the plan need not be read
  FLUVIAL_ASSIGN(const RoundId until, last_to_enter(*database_, run, round));
  const Entered rounds{run, round, until};
  FLUVIAL_ASSIGN(const bool counted, is_counted(*database_, rounds, site, digest));
  if (counted) return Outcome::kCounted;
  FLUVIAL_ASSIGN(const bool refused, is_refused(*database_, rounds, site));
  if (refused) return Outcome::kRefused;
  FLUVIAL_ASSIGN(const auto committed,
                 database_->scalar("SELECT 1 FROM commits WHERE run = ? AND round = ?", {run, round}));
  if (!committed) {
    FLUVIAL_ASSIGN(const bool pruned, is_pruned(*database_, run, round));
    if (pruned) return outcome_of_pruned(*database_, run, round, site, digest);
    return over ? Outcome::kLate : Outcome::kPending;
  }
  FLUVIAL_ASSIGN(const bool decided, is_decided(*database_, rounds, site));
  return over || decided ? Outcome::kLate : Outcome::kPending;
}

Result<round::Marks> CoordinatorJournal::marks(RunId run) {
  const std::lock_guard lock(mutex_);
  round::Marks marks;
  FLUVIAL_TRY(
      database_->query("SELECT site, own_round FROM marks WHERE run = ?", {run}, [&](const SqlRow& row) -> Status {
        marks[row.id<SiteId>(0)] = row.id<RoundId>(1);
        return {};
      }));
  return marks;
}

Result<std::map<SiteId, SiteShare>> CoordinatorJournal::shares(RunId run) {
  const std::lock_guard lock(mutex_);
  std::map<SiteId, SiteShare> shares;
  FLUVIAL_TRY(database_->query("SELECT site, rounds, weight, stale, staleness FROM marks WHERE run = ? AND rounds > 0",
                               {run}, [&](const SqlRow& row) -> Status {
                                 shares[row.id<SiteId>(0)] = {row.number(1), row.number(2), row.number(3),
                                                              row.number(4)};
                                 return {};
                               }));
  return shares;
}

}  // namespace fluvial::store
