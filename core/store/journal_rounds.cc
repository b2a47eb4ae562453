// Runs, attempts and commits.
#include <algorithm>
#include <cstring>
#include <utility>

#include "core/store/journal.h"
#include "core/store/journal_passes.h"
#include "core/store/journal_retention.h"
#include "core/store/plan_json.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr std::size_t kParticipantBytes = 20;  // site u32, lease u64, weight_max u64

Buffer participants_to_bytes(const std::vector<round::Participant>& participants) {
  Buffer bytes(participants.size() * kParticipantBytes);
  std::byte* to = bytes.data();
  for (const round::Participant& participant : participants) {
    store_le<std::uint32_t>(to, participant.site.value());
    store_le<std::uint64_t>(to + 4, participant.lease.value());
    store_le<std::uint64_t>(to + 12, participant.weight_max);
    to += kParticipantBytes;
  }
  return bytes;
}

Result<std::vector<round::Participant>> participants_from_bytes(ByteSpan bytes) {
  if (bytes.size() % kParticipantBytes != 0) return Error{Code::kDataLoss, "the journal holds damaged participants"};
  std::vector<round::Participant> participants;
  for (std::size_t at = 0; at < bytes.size(); at += kParticipantBytes) {
    const std::byte* from = bytes.data() + at;
    participants.push_back({SiteId(load_le<std::uint32_t>(from)), Epoch(load_le<std::uint64_t>(from + 4)),
                            load_le<std::uint64_t>(from + 12)});
  }
  return participants;
}

// Sites and their maximum weights. A round's scale follows from them, so they stay for all of its attempts.
std::map<SiteId, std::uint64_t> weights_of(const std::vector<round::Participant>& participants) {
  std::map<SiteId, std::uint64_t> weights;
  for (const round::Participant& participant : participants) weights[participant.site] = participant.weight_max;
  return weights;
}

std::string name_of(RunId run, RoundId round) {
  return "run " + std::to_string(run.value()) + " round " + std::to_string(round.value());
}

Result<RunStatus> status_from(std::int64_t number) {
  const auto status = static_cast<RunStatus>(number);
  if (round::run_status_name(status) == "unknown") return Error{Code::kDataLoss, "the journal holds an unknown status"};
  return status;
}

Result<RunRow> run_from(const SqlRow& row) {
  RunRow run;
  run.id = row.id<RunId>(0);
  FLUVIAL_ASSIGN(run.plan, plan_from_json(row.text(1)));
  FLUVIAL_ASSIGN(run.schema, schema_from_json(row.text(2)));
  FLUVIAL_ASSIGN(run.initial_model, row.digest(3));
  FLUVIAL_ASSIGN(run.status, status_from(row.integer(4)));
  run.reason = row.text(5);
  run.created_at = row.time(6);
  run.continues = row.id<RunId>(7);
  run.keeps_optimizer = row.integer(8) != 0;
  if (row.is_null(9)) return run;
  run.codec_state.emplace().bytes = row.number(10);
  FLUVIAL_ASSIGN(run.codec_state->digest, row.digest(9));
  return run;
}

Result<std::optional<RunStatus>> status_of(Database& database, RunId run) {
  FLUVIAL_ASSIGN(const auto status, database.scalar("SELECT status FROM runs WHERE id = ?", {run}));
  if (!status) return std::optional<RunStatus>();
  FLUVIAL_ASSIGN(const RunStatus known, status_from(*status));
  return std::optional(known);
}

Result<RoundId> last_round(Database& database, RunId run) {
  FLUVIAL_ASSIGN(const auto round, database.scalar("SELECT max(round) FROM commits WHERE run = ?", {run}));
  return RoundId(static_cast<std::uint64_t>(round.value_or(0)));
}

Result<std::optional<round::AttemptRecord>> last_attempt_of(Database& database, RunId run) {
  std::optional<round::AttemptRecord> found;
  FLUVIAL_TRY(
      database.query("SELECT round, attempt, epoch, participants, scale_bits, base FROM attempts WHERE run = ? "
                     "ORDER BY round DESC, attempt DESC LIMIT 1",
                     {run}, [&](const SqlRow& row) -> Status {
                       round::AttemptRecord attempt;
                       attempt.run = run;
                       attempt.round = row.id<RoundId>(0);
                       attempt.attempt = row.id<AttemptId>(1);
                       attempt.epoch = row.id<Epoch>(2);
                       FLUVIAL_ASSIGN(attempt.participants, participants_from_bytes(row.bytes(3)));
                       attempt.scale_bits = static_cast<int>(row.integer(4));
                       attempt.base.run = run;
                       attempt.base.version = ModelVersion(attempt.round.value() - 1);
                       FLUVIAL_ASSIGN(attempt.base.digest, row.digest(5));
                       found = std::move(attempt);
                       return {};
                     }));
  return found;
}

Status check_next_round(Database& database, RunId run, RoundId round) {
  FLUVIAL_ASSIGN(const RoundId last, last_round(database, run));
  if (round == last.next()) return {};
  return Error{Code::kFailedPrecondition,
               name_of(run, round) + ": the last committed round is " + std::to_string(last.value())};
}

Status check_same_round(const round::AttemptRecord& before, const round::AttemptRecord& now) {
  const std::string name = name_of(now.run, now.round);
  if (now.attempt <= before.attempt) {
    return Error{Code::kFailedPrecondition, name + ": attempt " + std::to_string(now.attempt.value()) +
                                                " after attempt " + std::to_string(before.attempt.value())};
  }
  // Sums of different scales do not merge. A new term begins with an empty sum, and may need more room.
  const bool lowered = now.scale_bits < before.scale_bits && now.epoch > before.epoch;
  if (now.scale_bits != before.scale_bits && !lowered) {
    return Error{Code::kFailedPrecondition, name + ": scale 2^" + std::to_string(now.scale_bits) +
                                                ", earlier attempts have 2^" + std::to_string(before.scale_bits)};
  }
  if (now.base.digest != before.base.digest) {
    return Error{Code::kFailedPrecondition, name + ": another base model than in earlier attempts"};
  }
  const std::map<SiteId, std::uint64_t> there = weights_of(now.participants);
  const bool kept = std::ranges::all_of(weights_of(before.participants), [&](const auto& participant) {
    const auto found = there.find(participant.first);
    return found != there.end() && found->second == participant.second;
  });
  if (!kept) {
    return Error{Code::kFailedPrecondition,
                 name + ": without a participant of an earlier attempt, or with another weight of one"};
  }
  return {};
}

Status check_commit(Database& database, const round::CommitRecord& commit) {
  FLUVIAL_TRY(check_next_round(database, commit.run, commit.round));
  FLUVIAL_ASSIGN(const std::optional<round::AttemptRecord> attempt, last_attempt_of(database, commit.run));
  const std::string name = name_of(commit.run, commit.round);
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
                      metrics_to_json(entry.metrics), entry.base, entry.admitted, std::uint64_t{entry.share}}));
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

Result<RunId> CoordinatorJournal::create_run(const RunRow& run) {
  const std::lock_guard lock(mutex_);
  RunId id;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const auto last, database_->scalar("SELECT max(id) FROM runs"));
    id = RunId(static_cast<std::uint64_t>(last.value_or(0)) + 1);
    if (run.id != RunId() && run.id != id) {
      return Error{Code::kFailedPrecondition, "the next run is " + std::to_string(id.value())};
    }
    const std::optional<round::VectorRef>& state = run.codec_state;
    return database_->run(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {id, plan_to_json(run.plan), schema_to_json(run.schema), run.initial_model, static_cast<int>(run.status),
         run.reason, run.created_at, run.continues, run.keeps_optimizer ? 1 : 0,
         state ? std::optional(state->digest) : std::nullopt, state ? state->bytes : 0});
  }));
  return id;
}

Status CoordinatorJournal::set_run_status(RunId run, RunStatus status, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<RunStatus> now, status_of(*database_, run));
    if (!now) return Error{Code::kNotFound, "there is no run " + std::to_string(run.value())};
    if (is_over(*now) && *now != status) {
      return Error{Code::kFailedPrecondition, "run " + std::to_string(run.value()) + " is " +
                                                  std::string(run_status_name(*now)) +
                                                  ": start a run that continues it"};
    }
    return database_->run("UPDATE runs SET status = ?, reason = ? WHERE id = ?",
                          {static_cast<int>(status), reason, run});
  });
}

Result<std::vector<RunRow>> CoordinatorJournal::runs() {
  const std::lock_guard lock(mutex_);
  if (const std::optional<Error>& fault = database_->fault()) return *fault;
  std::vector<RunRow> found;
  FLUVIAL_TRY(database_->query(
      "SELECT id, plan, schema, initial_model, status, reason, created_at, continues, keeps_optimizer, "
      "codec_state, codec_state_bytes FROM runs ORDER BY id",
      {}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(RunRow run, run_from(row));
        found.push_back(std::move(run));
        return {};
      }));
  return found;
}

Result<RunRow> CoordinatorJournal::run(RunId id) {
  const std::lock_guard lock(mutex_);
  if (const std::optional<Error>& fault = database_->fault()) return *fault;
  std::optional<RunRow> found;
  FLUVIAL_TRY(database_->query(
      "SELECT id, plan, schema, initial_model, status, reason, created_at, continues, keeps_optimizer, "
      "codec_state, codec_state_bytes FROM runs WHERE id = ?",
      {id}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(found, run_from(row));
        return {};
      }));
  if (!found) return Error{Code::kNotFound, "there is no run " + std::to_string(id.value())};
  return std::move(*found);
}

Result<std::vector<RunId>> CoordinatorJournal::continued_by(RunId run, std::size_t most) {
  const std::lock_guard lock(mutex_);
  std::vector<RunId> chain;
  for (RunId at = run; chain.size() < most;) {
    RunId before;
    FLUVIAL_TRY(database_->query("SELECT continues FROM runs WHERE id = ?", {at}, [&](const SqlRow& row) -> Status {
      before = row.id<RunId>(0);
      return {};
    }));
    if (before == RunId() || before >= at) break;
    chain.push_back(before);
    at = before;
  }
  return chain;
}

Status CoordinatorJournal::open_attempt(const round::AttemptRecord& attempt) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<RunStatus> status, status_of(*database_, attempt.run));
    if (!status) return Error{Code::kNotFound, "there is no run " + std::to_string(attempt.run.value())};
    if (is_over(*status)) {
      return Error{Code::kFailedPrecondition,
                   "run " + std::to_string(attempt.run.value()) + " is " + std::string(run_status_name(*status))};
    }
    FLUVIAL_TRY(check_next_round(*database_, attempt.run, attempt.round));
    FLUVIAL_ASSIGN(const std::optional<round::AttemptRecord> before, last_attempt_of(*database_, attempt.run));
    if (before && before->round == attempt.round) FLUVIAL_TRY(check_same_round(*before, attempt));
    // Within a run epochs do not fall, so the last attempt of each run has the run's greatest.
    FLUVIAL_ASSIGN(const auto epoch,
                   database_->scalar("SELECT max((SELECT epoch FROM attempts WHERE run = runs.id ORDER BY round DESC, "
                                     "attempt DESC LIMIT 1)) FROM runs"));
    if (attempt.epoch.value() < static_cast<std::uint64_t>(epoch.value_or(0))) {
      return Error{Code::kFailedPrecondition, name_of(attempt.run, attempt.round) + ": epoch " +
                                                  std::to_string(attempt.epoch.value()) + " after epoch " +
                                                  std::to_string(epoch.value_or(0))};
    }
    // The counter never hands out an epoch that an attempt has used, wherever the caller took it from.
    FLUVIAL_TRY(database_->run(
        "INSERT INTO counters VALUES ('epoch', ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        {attempt.epoch}));
    return database_->run(
        "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)",
        {attempt.run, attempt.round, attempt.attempt, attempt.epoch,
         ByteSpan(participants_to_bytes(attempt.participants).span()), attempt.scale_bits, attempt.base.digest});
  });
}

Result<std::optional<round::AttemptRecord>> CoordinatorJournal::last_attempt(RunId run) {
  const std::lock_guard lock(mutex_);
  return last_attempt_of(*database_, run);
}

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
    return Error{Code::kNotFound,
                 name_of(run, round) + (pruned ? " is no longer in the journal (keep_rounds)" : " is not committed")};
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
    return Error{Code::kNotFound, name_of(run, round) + " is not committed"};
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
