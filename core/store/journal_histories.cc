// Histories: rounds that a restored journal does not hold, and members that know of them.
#include <algorithm>
#include <utility>

#include "core/store/journal.h"
#include "core/store/journal_retention.h"
#include "core/store/lineage.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

// More nodes than anybody enrols between a backup and its restore.
constexpr std::uint64_t kNodeIdsSkipped = 1 << 16;

constexpr const char* kOpenRuns =
    "SELECT runs.id, coalesce((SELECT max(round) FROM commits WHERE run = runs.id), 0) FROM runs WHERE status IN (?, "
    "?) ORDER BY runs.id";

std::string words_of(const round::KnownRound& known) {
  return "round " + std::to_string(known.round.value()) + " of run " + std::to_string(known.run.value());
}

// Whether the journal holds a round that a member of its history knows. If it does not, it is not the newest copy.
Result<bool> holds_round(Database& database, SiteId site, const round::KnownRound& known) {
  FLUVIAL_ASSIGN(const auto status, database.scalar("SELECT status FROM runs WHERE id = ?", {known.run}));
  if (!status) return false;
  FLUVIAL_ASSIGN(const bool in_its_own,
                 is_counted(database, {known.run, known.round, known.round}, site, known.digest));
  if (in_its_own) return true;
  FLUVIAL_ASSIGN(const RoundId until, last_to_enter(database, known.run, known.round));
  FLUVIAL_ASSIGN(const bool held, is_counted(database, {known.run, known.round, until}, site, known.digest));
  if (held) return true;
  if (known.counted) {
    // It may have counted in a later round than its own, which a restore has undone.
    FLUVIAL_ASSIGN(const auto undone, database.scalar("SELECT 1 FROM forks WHERE run = ? AND round >= ? AND round < ?",
                                                      {known.run, known.round, until}));
    if (undone) return true;
  }
  FLUVIAL_ASSIGN(const bool pruned, is_pruned(database, known.run, known.round));
  if (pruned && !known.counted) return true;
  if (pruned) {
    FLUVIAL_ASSIGN(const Outcome outcome, outcome_of_pruned(database, known.run, known.round, site, known.digest));
    return outcome == Outcome::kCounted;
  }
  if (known.counted) return false;
  if (is_over(static_cast<RunStatus>(*status))) return true;
  const char* table = known.decided ? "SELECT 1 FROM commits WHERE run = ? AND round = ?"
                                    : "SELECT 1 FROM attempts WHERE run = ? AND round = ?";
  FLUVIAL_ASSIGN(const auto there, database.scalar(table, {known.run, known.round}));
  return there.has_value();
}

Error later_epoch(Epoch known, Epoch given) {
  const std::string heard = std::to_string(known.value());
  if (known > round::kClockEpochMax) {
    return {Code::kFailedPrecondition, "it claims to have heard of epoch " + heard +
                                           ", which no coordinator gives: its folder is damaged, or it "
                                           "lies. Nothing follows from it; look after that member"};
  }
  return {Code::kFailedPrecondition,
          "it has heard of epoch " + heard + ", and the newest here is " + std::to_string(given.value()) +
              ": this coordinator's folder is an older copy, or it was restored on a machine whose clock was behind. "
              "If it was restored on purpose, stop the coordinator, run it once with --restored --above " +
              heard + ", and start it again; otherwise stop it and start the newer one"};
}

Error older_copy(const std::string& what) {
  return {Code::kFailedPrecondition,
          what +
              ", which this coordinator's journal does not know: its folder is an older copy. If it was restored on "
              "purpose, stop the coordinator, run it once with --restored, and start it again; otherwise stop it "
              "and start the newer one"};
}

Result<Epoch> greatest_epoch(Database& database) {
  FLUVIAL_ASSIGN(const auto value, database.scalar("SELECT value FROM counters WHERE name = 'epoch'"));
  return Epoch(static_cast<std::uint64_t>(value.value_or(0)));
}

// Keeps as many rows of a member as it can show at once, so that other claims each time do not make the journal grow.
Status write_lost(Database& database, std::vector<LostRow>& rows, WallTime now) {
  std::vector<LostRow> written;
  for (const LostRow& row : rows) {
    const round::KnownRound& known = row.known;
    FLUVIAL_ASSIGN(
        const auto others,
        database.scalar("SELECT count(*) FROM lost WHERE history = ? AND site = ? AND NOT (run = ? AND round = ?)",
                        {row.history, row.site, known.run, known.round}));
    if (others.value_or(0) >= static_cast<std::int64_t>(round::kKnownRoundsMax)) continue;
    FLUVIAL_TRY(database.run("INSERT OR REPLACE INTO lost VALUES (?, ?, ?, ?, ?, ?, ?, ?)",
                             {row.history, known.run, known.round, row.site, known.decided ? 1 : 0,
                              known.counted ? 1 : 0, known.digest, now}));
    written.push_back(row);
  }
  rows = std::move(written);
  return {};
}

Status renew_leases(Database& database, std::uint64_t* epoch) {
  std::vector<NodeId> nodes;
  FLUVIAL_TRY(database.query("SELECT node FROM leases ORDER BY node", {}, [&](const SqlRow& row) -> Status {
    nodes.push_back(row.id<NodeId>(0));
    return {};
  }));
  for (const NodeId node : nodes) {
    FLUVIAL_TRY(database.run("UPDATE leases SET epoch = ? WHERE node = ?", {++*epoch, node}));
  }
  return {};
}

}  // namespace

Result<round::Lineage> CoordinatorJournal::lineage() {
  const std::lock_guard lock(mutex_);
  return read_lineage(*database_);
}

Result<round::History> CoordinatorJournal::begin_history(round::HistoryId id, Epoch above, WallTime now) {
  const std::lock_guard lock(mutex_);
  round::History history;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(round::Lineage lineage, read_lineage(*database_));
    FLUVIAL_ASSIGN(const Epoch given, greatest_epoch(*database_));
    FLUVIAL_ASSIGN(const auto last_run, database_->scalar("SELECT max(id) FROM runs"));
    const std::uint64_t clock = static_cast<std::uint64_t>(std::max<std::int64_t>(now.time_since_epoch().count(), 0));
    history = {id,
               Epoch(std::max(std::max(given, above).next().value(), clock)),
               RunId(static_cast<std::uint64_t>(last_run.value_or(0))),
               {}};
    FLUVIAL_TRY(database_->query(kOpenRuns,
                                 {static_cast<int>(RunStatus::kRunning), static_cast<int>(RunStatus::kPaused)},
                                 [&](const SqlRow& row) -> Status {
                                   history.forks.push_back({row.id<RunId>(0), row.id<RoundId>(1)});
                                   return {};
                                 }));
    lineage.push_back(history);
    FLUVIAL_TRY(round::check_lineage(lineage));
    FLUVIAL_TRY(write_history(*database_, lineage.size(), history));
    FLUVIAL_TRY(database_->run("UPDATE histories SET began_at = ? WHERE id = ?", {now, id}));
    std::uint64_t epoch = history.began.value();
    FLUVIAL_TRY(renew_leases(*database_, &epoch));
    FLUVIAL_TRY(database_->run(
        "INSERT INTO counters VALUES ('epoch', ?) ON CONFLICT (name) DO UPDATE SET value = excluded.value", {epoch}));
    FLUVIAL_TRY(database_->run("UPDATE counters SET value = value + ? WHERE name = 'node'", {kNodeIdsSkipped}));
    return database_->run("UPDATE tokens SET expires_at = min(expires_at, ?) WHERE uses < uses_max", {now});
  }));
  return history;
}

Result<std::vector<LostRow>> CoordinatorJournal::meet(NodeId node, const round::Standing& standing, WallTime now) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const Epoch given, greatest_epoch(*database_));
  if (standing.epoch > given) return later_epoch(standing.epoch, given);
  FLUVIAL_ASSIGN(const round::Lineage lineage, read_lineage(*database_));
  if (standing.history == round::current_of(lineage)) {
    for (const round::KnownRound& known : standing.rounds) {
      FLUVIAL_ASSIGN(const bool held, holds_round(*database_, node, known));
      if (!held) return older_copy("it knows of " + words_of(known));
    }
    return std::vector<LostRow>();
  }
  // With a history that is no ancestor of this one, only the rounds before this one's first restore are surely shared.
  const auto own = std::ranges::find(lineage, standing.history, &round::History::id);
  const round::Lineage theirs =
      own == lineage.end() ? round::Lineage() : round::Lineage(lineage.begin(), std::next(own));
  const round::Common common(theirs, lineage);
  std::vector<LostRow> lost;
  for (const round::KnownRound& known : standing.rounds) {
    if (!common.has(known.run, known.round)) lost.push_back({round::current_of(lineage), node, known});
  }
  if (lost.empty()) return lost;
  FLUVIAL_TRY(change([&] { return write_lost(*database_, lost, now); }));
  return lost;
}

Result<std::vector<LostRow>> CoordinatorJournal::lost() {
  const std::lock_guard lock(mutex_);
  std::vector<LostRow> found;
  FLUVIAL_TRY(database_->query(
      "SELECT history, run, round, site, decided, counted, digest FROM lost ORDER BY run, round, site", {},
      [&](const SqlRow& row) -> Status {
        LostRow lost{row.id<round::HistoryId>(0),
                     row.id<SiteId>(3),
                     {row.id<RunId>(1), row.id<RoundId>(2), row.integer(4) != 0, row.integer(5) != 0, {}}};
        FLUVIAL_ASSIGN(lost.known.digest, row.digest(6));
        found.push_back(std::move(lost));
        return {};
      }));
  return found;
}

}  // namespace fluvial::store
