// Attempts: a round's participants, scale and base, before anything is sent for it.
#include <algorithm>
#include <utility>

#include "core/store/journal.h"
#include "core/store/journal_rounds.h"
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

Status check_same_round(const round::AttemptRecord& before, const round::AttemptRecord& now) {
  const std::string name = run_and_round(now.run, now.round);
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

}  // namespace

std::map<SiteId, std::uint64_t> weights_of(const std::vector<round::Participant>& participants) {
  std::map<SiteId, std::uint64_t> weights;
  for (const round::Participant& participant : participants) weights[participant.site] = participant.weight_max;
  return weights;
}

std::string run_and_round(RunId run, RoundId round) {
  return "run " + std::to_string(run.value()) + " round " + std::to_string(round.value());
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
               run_and_round(run, round) + ": the last committed round is " + std::to_string(last.value())};
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
      return Error{Code::kFailedPrecondition, run_and_round(attempt.run, attempt.round) + ": epoch " +
                                                  std::to_string(attempt.epoch.value()) + " after epoch " +
                                                  std::to_string(epoch.value_or(0))};
    }
    // The counter never hands out an epoch that an attempt has used, wherever the caller took it from.
    FLUVIAL_TRY(database_->run(
        "INSERT INTO counters VALUES ('epoch', ?) ON CONFLICT (name) DO UPDATE SET value = max(value, excluded.value)",
        {attempt.epoch}));
    FLUVIAL_TRY(database_->run(
        "INSERT INTO attempts VALUES (?, ?, ?, ?, ?, ?, ?)",
        {attempt.run, attempt.round, attempt.attempt, attempt.epoch,
         ByteSpan(participants_to_bytes(attempt.participants).span()), attempt.scale_bits, attempt.base.digest}));
    // Nothing asks for an attempt that was followed by another one; a window that nobody comes into has no last one.
    return database_->run("DELETE FROM attempts WHERE run = ? AND round = ? AND attempt < ?",
                          {attempt.run, attempt.round, attempt.attempt});
  });
}

Result<std::optional<round::AttemptRecord>> CoordinatorJournal::last_attempt(RunId run) {
  const std::lock_guard lock(mutex_);
  return last_attempt_of(*database_, run);
}

}  // namespace fluvial::store
