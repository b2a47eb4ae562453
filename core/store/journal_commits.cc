// Commits: what a round came to, written in one transaction and read again.
#include <algorithm>
#include <utility>

#include "core/store/journal.h"
#include "core/store/journal_passes.h"
#include "core/store/journal_retention.h"
#include "core/store/journal_rounds.h"
#include "core/store/plan_json.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

Status check_commit(Database& database, const round::CommitRecord& commit) {
  FLUVIAL_TRY(check_next_round(database, commit.run, commit.round));
  FLUVIAL_ASSIGN(const std::optional<round::AttemptRecord> attempt, last_attempt_of(database, commit.run));
  const std::string name = run_and_round(commit.run, commit.round);
  if (!attempt || attempt->round != commit.round || attempt->attempt != commit.attempt) {
    return Error{Code::kFailedPrecondition,
                 name + ": attempt " + std::to_string(commit.attempt.value()) + " is not its last one"};
  }
  const std::map<SiteId, std::uint64_t> weights = weights_of(attempt->participants);
  for (const auto& [site, contribution] : commit.contributors.entries()) {
    if (!weights.contains(site)) {
      return Error{Code::kFailedPrecondition, name + ": site " + std::to_string(site.value()) + " is no participant"};
    }
  }
  return check_passes(commit);
}

Status write_signatures(Database& database, const CommitRow& row) {
  const round::CommitRecord& commit = row.record;
  for (const auto& [site, key] : row.keys) {
    const round::Contribution* const entry = commit.contributors.find(site);
    if (entry == nullptr || !entry->signature) continue;
    FLUVIAL_TRY(database.run("INSERT INTO signatures VALUES (?, ?, ?, ?, ?, ?, ?)",
                             {commit.run, commit.round, site, entry->incarnation, entry->submission, ByteSpan(key),
                              ByteSpan(*entry->signature)}));
    FLUVIAL_TRY(database.run("INSERT OR IGNORE INTO signers VALUES (?)", {site}));
  }
  if (!row.order) return {};
  return database.run("INSERT INTO orders VALUES (?, ?, ?, ?)",
                      {commit.run, commit.round, as_byte_span(row.order->statement), ByteSpan(row.order->signature)});
}

Status write_commit(Database& database, const CommitRow& row) {
  const round::CommitRecord& commit = row.record;
  FLUVIAL_TRY(database.run(
      "INSERT INTO commits VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
      {commit.run, commit.round, commit.attempt, row.participants_count, commit.contributors.total_weight(),
       commit.model.digest, row.master, row.optimizer, row.sum_digest, row.duration_ms, row.bytes_up, row.bytes_down,
       metrics_to_json(row.metrics), metrics_to_json(row.evaluation), row.committed_at}));
  for (const auto& [site, entry] : commit.contributors.entries()) {
    FLUVIAL_TRY(
        database.run("INSERT INTO contributions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
                     "(SELECT parent FROM known_leases WHERE node = ?3 AND epoch = ?4))",
                     {commit.run, commit.round, site, entry.lease, entry.weight, entry.digest, entry.probe,
                      reported_to_json(entry.metrics), entry.base, entry.admitted, std::uint64_t{entry.share}}));
  }
  FLUVIAL_TRY(write_passes(database, commit));
  if (commit.late_is_next) FLUVIAL_TRY(raise_marks(database, commit));
  for (const round::Refusal& refusal : commit.refusals) {
    FLUVIAL_TRY(database.run("INSERT OR REPLACE INTO refusals VALUES (?, ?, ?, ?, ?, ?)",
                             {commit.run, commit.round, refusal.site, static_cast<int>(refusal.error.code),
                              refusal.error.message, refusal.own}));
  }
  for (const LateSite& late : row.late) {
    FLUVIAL_TRY(database.run("INSERT OR REPLACE INTO late VALUES (?, ?, ?, ?)",
                             {commit.run, commit.round, late.site, late.reason}));
  }
  return write_signatures(database, row);
}

Result<CommitRow> commit_from(const SqlRow& row, RunId run) {
  CommitRow commit;
  round::CommitRecord& record = commit.record;
  record.run = run;
  record.round = row.id<RoundId>(0);
  record.attempt = row.id<AttemptId>(1);
  record.model.run = run;
  record.model.version = ModelVersion(record.round.value());
  FLUVIAL_ASSIGN(record.model.digest, row.digest(3));
  commit.participants_count = row.number(2);
  FLUVIAL_ASSIGN(commit.master, row.digest(4));
  commit.optimizer = row.text(5);
  if (!row.is_null(6)) {
    FLUVIAL_ASSIGN(commit.sum_digest, row.digest(6));
  }
  commit.duration_ms = row.number(7);
  commit.bytes_up = row.number(8);
  commit.bytes_down = row.number(9);
  FLUVIAL_ASSIGN(commit.metrics, metrics_from_json(row.text(10)));
  FLUVIAL_ASSIGN(commit.evaluation, metrics_from_json(row.text(11)));
  commit.committed_at = row.time(12);
  commit.weight = row.number(13);
  if (!row.is_null(14)) {
    record.codec_state.emplace().bytes = row.number(15);
    FLUVIAL_ASSIGN(record.codec_state->digest, row.digest(14));
  }
  record.passes.resize(std::min<std::uint64_t>(row.number(16), round::kPassesMost));
  return commit;
}

Result<Signature> signature_from(ByteSpan bytes) {
  Signature signature;
  if (bytes.size() != signature.size()) return Error{Code::kDataLoss, "the journal holds a damaged signature"};
  std::ranges::copy(bytes, signature.begin());
  return signature;
}

Status read_signature(const SqlRow& row, round::Contribution& entry, CommitRow& read) {
  if (row.is_null(6)) return {};
  entry.incarnation = row.id<Incarnation>(6);
  entry.submission = row.number(7);
  const ByteSpan key = row.bytes(8);
  read.keys.emplace(entry.site, std::vector<std::byte>(key.begin(), key.end()));
  FLUVIAL_ASSIGN(entry.signature, signature_from(row.bytes(9)));
  return {};
}

Status read_order(Database& database, CommitRow& read) {
  return database.query("SELECT statement, signature FROM orders WHERE run = ? AND round = ?",
                        {read.record.run, read.record.round}, [&](const SqlRow& row) -> Status {
                          SignedOrder order{std::string(as_text(row.bytes(0))), {}};
                          FLUVIAL_ASSIGN(order.signature, signature_from(row.bytes(1)));
                          read.order = std::move(order);
                          return {};
                        });
}

Status read_members(Database& database, CommitRow& read) {
  round::CommitRecord& commit = read.record;
  if (!commit.passes.empty()) FLUVIAL_TRY(read_passes(database, &commit));
  const round::MadeFrom from = made_from(commit);
  FLUVIAL_TRY(database.query(
      "SELECT c.site, lease, weight, digest, probe, metrics, s.incarnation, s.submission, s.key, s.signature, "
      "base_version, admitted_version, share, parent FROM "
      "contributions AS c LEFT JOIN signatures AS s ON s.run = c.run AND s.round = c.round AND s.site = c.site WHERE "
      "c.run = ? AND c.round = ? ORDER BY c.site",
      {commit.run, commit.round}, [&](const SqlRow& row) -> Status {
        round::Contribution entry;
        entry.site = row.id<SiteId>(0);
        entry.lease = row.id<Epoch>(1);
        entry.weight = row.number(2);
        FLUVIAL_ASSIGN(entry.digest, row.digest(3));
        entry.probe = row.integer(4);
        FLUVIAL_ASSIGN(entry.metrics, metrics_from_json(row.text(5)));
        entry.base = row.id<ModelVersion>(10);
        entry.admitted = row.id<ModelVersion>(11);
        entry.share = static_cast<std::uint32_t>(row.number(12));
        if (!row.is_null(13)) read.parents.emplace(entry.site, row.id<NodeId>(13));
        entry.from = from;
        FLUVIAL_TRY(read_signature(row, entry, read));
        return commit.contributors.add(std::move(entry));
      }));
  FLUVIAL_TRY(read_order(database, read));
  FLUVIAL_TRY(
      database.query("SELECT site, code, message, own_round FROM refusals WHERE run = ? AND round = ? ORDER BY site",
                     {commit.run, commit.round}, [&](const SqlRow& row) -> Status {
                       commit.refusals.push_back(
                           {row.id<SiteId>(0), {static_cast<Code>(row.integer(1)), row.text(2)}, row.id<RoundId>(3)});
                       return {};
                     }));
  return database.query("SELECT site, reason FROM late WHERE run = ? AND round = ? ORDER BY site",
                        {commit.run, commit.round}, [&](const SqlRow& row) -> Status {
                          read.late.push_back({row.id<SiteId>(0), row.text(1)});
                          return {};
                        });
}

Result<std::vector<CommitRow>> read_commits(Database& database, RunId run, RoundId from, std::uint64_t limit) {
  std::vector<CommitRow> commits;
  const std::uint64_t bounded = std::min<std::uint64_t>(limit, std::uint64_t{1} << 62);
  FLUVIAL_TRY(database.query(
      "SELECT round, attempt, participants_count, model, master, optimizer, sum_digest, duration_ms, bytes_up, "
      "bytes_down, metrics, evaluation, committed_at, total_weight, s.digest, s.bytes, "
      "(SELECT count(*) FROM passes AS p WHERE p.run = c.run AND p.round = c.round) "
      "FROM commits AS c LEFT JOIN codec_states AS s USING (run, round) WHERE run = ? AND round >= ? ORDER BY round "
      "LIMIT ?",
      {run, from, bounded}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(CommitRow commit, commit_from(row, run));
        commits.push_back(std::move(commit));
        return {};
      }));
  for (CommitRow& commit : commits) FLUVIAL_TRY(read_members(database, commit));
  return commits;
}

}  // namespace

Status CoordinatorJournal::commit(const CommitRow& commit) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_TRY(check_commit(*database_, commit.record));
    return write_commit(*database_, commit);
  });
}

Result<std::optional<CommitRow>> CoordinatorJournal::last_commit(RunId run) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const RoundId last, last_round(*database_, run));
  FLUVIAL_ASSIGN(std::vector<CommitRow> found, read_commits(*database_, run, last, 1));
  if (found.empty()) return std::optional<CommitRow>();
  return std::optional(std::move(found.front()));
}

Result<std::vector<CommitRow>> CoordinatorJournal::commits(RunId run, RoundId from, std::uint64_t limit) {
  const std::lock_guard lock(mutex_);
  return read_commits(*database_, run, from, limit);
}

Result<CommitRow> CoordinatorJournal::commit_of(RunId run, RoundId round) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(std::vector<CommitRow> found, read_commits(*database_, run, round, 1));
  if (found.empty() || found.front().record.round != round) {
    FLUVIAL_ASSIGN(const bool pruned, is_pruned(*database_, run, round));
    return Error{Code::kNotFound, run_and_round(run, round) +
                                      (pruned ? " is no longer in the journal (keep_rounds)" : " is not committed")};
  }
  return std::move(found.front());
}

Result<std::set<SiteId>> CoordinatorJournal::signers() {
  const std::lock_guard lock(mutex_);
  std::set<SiteId> signers;
  FLUVIAL_TRY(database_->query("SELECT site FROM signers ORDER BY site", {}, [&](const SqlRow& row) -> Status {
    signers.insert(signers.end(), row.id<SiteId>(0));
    return {};
  }));
  return signers;
}

Status CoordinatorJournal::set_evaluation(RunId run, RoundId round, const round::Metrics& metrics) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_TRY(database_->run("UPDATE commits SET evaluation = ? WHERE run = ? AND round = ?",
                               {metrics_to_json(metrics), run, round}));
    if (database_->changes() == 1) return {};
    return Error{Code::kNotFound, run_and_round(run, round) + " is not committed"};
  });
}

Result<std::vector<round::ModelKey>> CoordinatorJournal::referenced_models() {
  const std::lock_guard lock(mutex_);
  std::vector<round::ModelKey> found;
  FLUVIAL_TRY(database_->query("SELECT id, 0 FROM runs UNION SELECT run, round FROM commits ORDER BY 1, 2", {},
                               [&](const SqlRow& row) -> Status {
                                 found.push_back({row.id<RunId>(0), row.id<ModelVersion>(1)});
                                 return {};
                               }));
  return found;
}

}  // namespace fluvial::store
