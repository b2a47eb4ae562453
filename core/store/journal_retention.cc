// What the journal prunes, and what it still knows of pruned rounds.
#include "core/store/journal_retention.h"

#include <algorithm>
#include <utility>
#include <vector>

#include "core/round/fairness.h"
#include "core/store/journal.h"
#include "core/store/plan_json.h"

namespace fluvial::store {
namespace {

// The most rounds in one transaction: a commit waits for no more than this.
constexpr std::uint64_t kRoundsAtOnce = 64;
constexpr std::uint64_t kContributionsAtOnce = 4096;

// A run's rounds after `pruned`, up to `last`, are in the journal.
struct Held {
  RunId run;
  RoundId pruned;
  RoundId last;
  std::uint64_t count() const { return last.value() - pruned.value(); }
};

Result<std::vector<Held>> held_rounds(Database& database) {
  std::vector<Held> held;
  FLUVIAL_TRY(database.query(
      "SELECT runs.id, coalesce(pruned.round, 0), coalesce((SELECT max(round) FROM commits WHERE run = runs.id), 0) "
      "FROM runs LEFT JOIN pruned ON pruned.run = runs.id ORDER BY runs.id",
      {}, [&](const SqlRow& row) -> Status {
        held.push_back({row.id<RunId>(0), row.id<RoundId>(1), row.id<RoundId>(2)});
        return {};
      }));
  return held;
}

std::uint64_t count_of(const std::vector<Held>& held) {
  std::uint64_t count = 0;
  for (const Held& one : held) count += one.count();
  return count;
}

// The newest round that may go. Later rounds stay: a new term and a restore begin with them, or their model is kept.
Result<RoundId> last_prunable(Database& database, const Held& held) {
  std::uint64_t stay = 1;
  FLUVIAL_TRY(database.query("SELECT plan FROM runs WHERE id = ?", {held.run}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(const round::Plan plan, plan_from_json(row.text(0)));
    stay = std::max(stay, plan.models_kept);
    if (late_is_next(plan)) stay = std::max<std::uint64_t>(stay, plan.staleness_max + 1);
    if (is_fair(plan)) stay = std::max(stay, round::kRateHistory);
    return {};
  }));
  return RoundId(held.last.value() - std::min(stay, held.last.value()));
}

// The newest of the site's pruned updates with this outcome, by the round that it is of.
struct Settled {
  RunId run;
  RoundId round;
  Digest digest{};
};
Result<std::optional<Settled>> settled(Database& database, SiteId site, Outcome outcome) {
  std::optional<Settled> found;
  FLUVIAL_TRY(database.query("SELECT run, round, digest FROM settled WHERE site = ? AND outcome = ?",
                             {site, static_cast<int>(outcome)}, [&](const SqlRow& row) -> Status {
                               FLUVIAL_ASSIGN(const Digest digest, row.digest(2));
                               found = Settled{row.id<RunId>(0), row.id<RoundId>(1), digest};
                               return {};
                             }));
  return found;
}

Status settle(Database& database, SiteId site, Outcome outcome, RunId run, RoundId round, const Digest& digest) {
  FLUVIAL_ASSIGN(const std::optional<Settled> before, settled(database, site, outcome));
  if (before && std::pair(before->run, before->round) > std::pair(run, round)) return {};
  return database.run("INSERT OR REPLACE INTO settled VALUES (?, ?, ?, ?, ?)",
                      {site, static_cast<int>(outcome), run, round, digest});
}

// Prunes a round and returns how many contributions it had.
Result<std::uint64_t> prune_round(Database& database, RunId run, RoundId round) {
  struct Decided {
    SiteId site;
    Outcome outcome;
    RoundId own;
    Digest digest{};
  };
  std::vector<Decided> all;
  FLUVIAL_TRY(database.query(
      "SELECT site, digest, base_version, admitted_version FROM contributions WHERE run = ? AND round = ?",
      {run, round}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(const Digest digest, row.digest(1));
        round::Contribution entry;
        entry.base = row.id<ModelVersion>(2);
        entry.admitted = row.id<ModelVersion>(3);
        all.push_back({row.id<SiteId>(0), Outcome::kCounted, entry.own_round(round), digest});
        return {};
      }));
  const std::uint64_t counted = all.size();
  FLUVIAL_TRY(database.query("SELECT site, code, own_round FROM refusals WHERE run = ? AND round = ?", {run, round},
                             [&](const SqlRow& row) -> Status {
                               const round::Refusal refusal{
                                   row.id<SiteId>(0), {static_cast<Code>(row.integer(1)), {}}, row.id<RoundId>(2)};
                               if (!round::drops_update(refusal.error.code)) return {};
                               all.push_back({refusal.site, Outcome::kRefused, refusal.own_round(round)});
                               return {};
                             }));
  for (const Decided& one : all) FLUVIAL_TRY(settle(database, one.site, one.outcome, run, one.own, one.digest));
  for (const char* sql :
       {"DELETE FROM signatures WHERE run = ? AND round = ?", "DELETE FROM orders WHERE run = ? AND round = ?",
        "DELETE FROM pass_contributions WHERE run = ? AND round = ?", "DELETE FROM passes WHERE run = ? AND round = ?",
        "DELETE FROM codec_states WHERE run = ? AND round = ?", "DELETE FROM contributions WHERE run = ? AND round = ?",
        "DELETE FROM refusals WHERE run = ? AND round = ?", "DELETE FROM late WHERE run = ? AND round = ?",
        "DELETE FROM commits WHERE run = ? AND round = ?", "DELETE FROM attempts WHERE run = ? AND round = ?"}) {
    FLUVIAL_TRY(database.run(sql, {run, round}));
  }
  FLUVIAL_TRY(database.run("INSERT INTO pruned VALUES (?, ?) ON CONFLICT (run) DO UPDATE SET round = excluded.round",
                           {run, round}));
  return counted;
}

Result<bool> is_too_old(Database& database, const Held& held, RoundId round, const KeptRounds& kept) {
  if (!kept.committed_since) return false;
  FLUVIAL_ASSIGN(const auto old,
                 database.scalar("SELECT 1 FROM commits WHERE run = ? AND round = ? AND committed_at < ?",
                                 {held.run, round, *kept.committed_since}));
  return old.has_value();
}

// Rounds of one run that are pruned in one transaction.
struct Batch {
  std::uint64_t too_many = 0;  // over all runs
  RoundId last;                // the newest that may go
  std::uint64_t rounds = 0;
};

Result<Batch> wanted(Database& database, const Held& held, std::uint64_t too_many, const KeptRounds& kept) {
  Batch batch{too_many, held.pruned, 0};
  if (held.count() <= 1) return batch;
  FLUVIAL_ASSIGN(const bool too_old, is_too_old(database, held, held.pruned.next(), kept));
  if (too_many > 0 || too_old) {
    FLUVIAL_ASSIGN(batch.last, last_prunable(database, held));
  }
  return batch;
}

Status prune_batch(Database& database, const Held& held, const KeptRounds& kept, Batch& batch) {
  std::uint64_t contributions = 0;
  for (RoundId round = held.pruned.next(); round <= batch.last; round = round.next()) {
    FLUVIAL_ASSIGN(const bool too_old, is_too_old(database, held, round, kept));
    const bool goes = too_old || batch.rounds < batch.too_many;
    if (!goes || batch.rounds >= kRoundsAtOnce || contributions >= kContributionsAtOnce) return {};
    FLUVIAL_ASSIGN(const std::uint64_t counted, prune_round(database, held.run, round));
    contributions += counted;
    ++batch.rounds;
  }
  return {};
}

}  // namespace

Result<bool> is_pruned(Database& database, RunId run, RoundId round) {
  FLUVIAL_ASSIGN(const auto pruned, database.scalar("SELECT round FROM pruned WHERE run = ?", {run}));
  return pruned && round.value() <= static_cast<std::uint64_t>(*pruned);
}

Result<Outcome> outcome_of_pruned(Database& database, RunId run, RoundId round, SiteId site, const Digest& digest) {
  const std::pair asked(run, round);
  FLUVIAL_ASSIGN(const std::optional<Settled> counted, settled(database, site, Outcome::kCounted));
  if (counted && asked < std::pair(counted->run, counted->round)) return Outcome::kCounted;
  if (counted && asked == std::pair(counted->run, counted->round) && digest == counted->digest) {
    return Outcome::kCounted;
  }
  FLUVIAL_ASSIGN(const std::optional<Settled> refused, settled(database, site, Outcome::kRefused));
  return refused && asked == std::pair(refused->run, refused->round) ? Outcome::kRefused : Outcome::kLate;
}

Result<std::uint64_t> CoordinatorJournal::prune_rounds(const KeptRounds& kept) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const std::vector<Held> held, held_rounds(*database_));
  const std::uint64_t count = count_of(held);
  const std::uint64_t too_many = kept.newest > 0 && count > kept.newest ? count - kept.newest : 0;
  for (const Held& run : held) {
    FLUVIAL_ASSIGN(Batch batch, wanted(*database_, run, too_many, kept));
    if (batch.last <= run.pruned) continue;
    FLUVIAL_TRY(change([&] { return prune_batch(*database_, run, kept, batch); }));
    return batch.rounds;
  }
  return std::uint64_t{0};
}

Result<RoundId> CoordinatorJournal::pruned(RunId run) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const auto round, database_->scalar("SELECT round FROM pruned WHERE run = ?", {run}));
  return RoundId(static_cast<std::uint64_t>(round.value_or(0)));
}

Result<std::uint64_t> CoordinatorJournal::prune_tokens(WallTime since) {
  const std::string ended =
      std::string("FROM tokens WHERE coalesce(used_at, ?1) <= ?1 AND coalesce(revoked_at, ?1) <= ?1 AND ") +
      "(uses >= uses_max OR revoked_at IS NOT NULL OR expires_at <= ?1)";
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const auto count, database_->scalar(("SELECT count(*) " + ended).c_str(), {since}));
  if (count.value_or(0) == 0) return std::uint64_t{0};
  FLUVIAL_TRY(change([&] { return database_->run(("DELETE " + ended).c_str(), {since}); }));
  return static_cast<std::uint64_t>(*count);
}

Result<JournalSize> CoordinatorJournal::size() {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const auto page, database_->scalar("PRAGMA page_size"));
  FLUVIAL_ASSIGN(const auto pages, database_->scalar("PRAGMA page_count"));
  FLUVIAL_ASSIGN(const auto unused, database_->scalar("PRAGMA freelist_count"));
  FLUVIAL_ASSIGN(const std::vector<Held> held, held_rounds(*database_));
  const auto bytes = [&](const std::optional<std::int64_t>& count) {
    return static_cast<std::uint64_t>(page.value_or(0)) * static_cast<std::uint64_t>(count.value_or(0));
  };
  return JournalSize{bytes(pages), bytes(unused), count_of(held)};
}

}  // namespace fluvial::store
