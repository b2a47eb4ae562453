// The later passes of a submission (docs/design/phases.md).
#include <tuple>
#include <utility>

#include "core/round/pass.h"
#include "core/round/probe.h"
#include "core/round/schema.h"
#include "core/store/site_rows.h"
#include "core/store/site_store.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

Error no_pass(RoundId round, std::uint32_t pass, std::string_view why) {
  return {Code::kFailedPrecondition,
          "round " + std::to_string(round.value()) + " " + round::pass_name(pass) + ": " + std::string(why)};
}

// So that nobody reads or reserves by a row that cannot be one.
Status check_pass_row(const PassRow& row) {
  FLUVIAL_TRY(check_file_name(row.left_file));
  FLUVIAL_TRY(check_file_name(row.chunks_file));
  const PendingStart& start = row.info.start;
  const bool fits = start.from.pass > 0 && start.from.pass < round::kPassesMost &&
                    start.sent_values <= round::kModelBytesMax / sizeof(float) && row.left_norm >= 0;
  return fits ? Status{} : Status{damaged_row("pass of a submission")};
}

Result<PassRow> pass_from(const SqlRow& row, const PendingRow& pending) {
  PassRow found{pending.info, {}, {}, 0, {}, {}, {}};
  PendingStart& start = found.info.start;
  start.from.pass = static_cast<std::uint32_t>(row.number(0));
  found.info.submission = row.number(1);
  found.info.incarnation = row.id<Incarnation>(2);
  FLUVIAL_ASSIGN(start.from.mean, row.digest(3));
  found.epoch = row.id<Epoch>(4);
  found.attempt = row.id<AttemptId>(5);
  start.sent_values = row.number(6);
  FLUVIAL_ASSIGN(found.info.digest, row.digest(7));
  if (row.number(8) >= kDigestKinds) return damaged_row("pass of a submission: a digest of unknown kind");
  start.digest_kind = static_cast<DigestKind>(row.number(8));
  found.left_norm = row.real(9);
  found.info.left_norm = found.left_norm;
  found.left_file = row.text(10);
  found.chunks_file = row.text(11);
  FLUVIAL_ASSIGN(found.chunk_ends, ends_from_bytes(row.bytes(12)));
  start.chunk_count = found.chunk_ends.size();
  found.info.chunk_bytes = found.chunk_ends.empty() ? 0 : found.chunk_ends.back();
  found.info.trailer_bytes = row.number(13);
  if (found.info.trailer_bytes != start.integer_count * sizeof(std::int64_t) + round::kProbeBytes) {
    return damaged_row("pass of a submission: its trailer");
  }
  FLUVIAL_TRY(check_pass_row(found));
  return found;
}

}  // namespace

Result<std::vector<PassRow>> pass_rows(Database& database, const PendingRow& pending) {
  std::vector<PassRow> found;
  FLUVIAL_TRY(database.query(
      "SELECT pass, submission, incarnation, mean, epoch, attempt, sent_values, digest, digest_kind, left_norm, "
      "left_file, chunks_file, chunk_ends, trailer_bytes FROM pending_passes WHERE run = ? ORDER BY pass",
      {pending.info.start.run}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(PassRow pass, pass_from(row, pending));
        found.push_back(std::move(pass));
        return {};
      }));
  return found;
}

Result<ResidualRow> left_by(const PendingRow& pending, const std::vector<PassRow>& passes, std::optional<double> norm) {
  const PendingStart& start = pending.info.start;
  if (start.passes == 1) return left_of(pending, norm);
  if (passes.empty() || passes.back().info.start.from.pass + 1 != start.passes) {
    return no_pass(start.round, start.passes - 1, "it cannot count, as it is not here");
  }
  if (passes.back().left_norm == 0) return ResidualRow();
  return ResidualRow{{false, start.value_count, 0, passes.back().left_norm}, passes.back().left_file};
}

std::set<std::string> files_of(const PendingRow& pending, const std::vector<PassRow>& passes) {
  std::set<std::string> names{pending.p_file, pending.chunks_file};
  for (const PassRow& pass : passes) names.insert({pass.left_file, pass.chunks_file});
  return names;
}

Status SiteStore::may_begin_pass(const PassStart& start) {
  const std::uint32_t pass = start.from.pass;
  FLUVIAL_ASSIGN(const std::optional<PendingRow> pending, pending_row(*database_, start.run));
  if (!pending || pending->info.start.round != start.round) {
    return no_pass(start.round, pass, "its submission is not here");
  }
  FLUVIAL_ASSIGN(const std::vector<PassRow> passes, pass_rows(*database_, *pending));
  if (pass == 0 || pass >= pending->info.start.passes || pass > passes.size() + 1) {
    return no_pass(start.round, pass, "the one before is not here");
  }
  // An opening that is played again must not bring back what a later attempt's mean has replaced: that may count.
  for (const PassRow& known : passes) {
    const auto now = std::tie(start.epoch, start.attempt);
    const auto then = std::tie(known.epoch, known.attempt);
    if (now > then || (now == then && known.info.start.from.pass != pass)) continue;
    // It may be in the root's sum already: made again, it would be other bytes under another number.
    if (now == then && known.info.start.from == start.from) {
      return Error{Code::kAlreadyExists, round::pass_name(pass) + " of this attempt is here"};
    }
    return Error{Code::kStale, round::pass_name(pass) + " of attempt " + std::to_string(start.attempt.value()) +
                                   ": it was made for attempt " + std::to_string(known.attempt.value()) +
                                   ", from another mean"};
  }
  return {};
}

Result<std::unique_ptr<PendingWriter>> SiteStore::begin_pass(const PassStart& start) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(may_begin_pass(start));
  FLUVIAL_ASSIGN(const std::optional<PendingRow> pending, pending_row(*database_, start.run));
  std::unique_ptr<PendingWriter> writer(new PendingWriter);
  writer->store_ = this;
  writer->pass_ = start;
  writer->chunks_name_ = new_name();
  writer->p_name_ = new_name();
  FLUVIAL_ASSIGN(writer->chunks_, spares_.open(writer->chunks_name_, SpareFiles::Size::kSmall));
  FLUVIAL_ASSIGN(writer->p_, spares_.open(writer->p_name_, SpareFiles::Size::kLarge));
  writer->info_.start = pending->info.start;
  writer->info_.start.lossless = false;
  writer->info_.start.from = start.from;
  writer->info_.start.sent_values = start.sent_values;
  writer->info_.start.chunk_count = start.chunk_count;
  writer->info_.start.digest_kind = start.digest_kind;
  writer->info_.incarnation = incarnation_;
  writer->info_.submission = ++submissions_;
  writer->info_.p_norm = pending->info.p_norm;
  return writer;
}

// Within the transaction that makes it durable. What was made of an earlier mean goes, and what came after it.
Status SiteStore::record_pass(PendingWriter& writer) {
  const PassStart& start = *writer.pass_;
  const PendingInfo& info = writer.info_;
  FLUVIAL_TRY(may_begin_pass(start));
  FLUVIAL_ASSIGN(const std::optional<PendingRow> pending, pending_row(*database_, start.run));
  FLUVIAL_ASSIGN(const std::vector<PassRow> before, pass_rows(*database_, *pending));
  for (const PassRow& row : before) {
    if (row.info.start.from.pass < start.from.pass) continue;
    writer.replaces_.insert(writer.replaces_.end(), {row.left_file, row.chunks_file});
  }
  FLUVIAL_TRY(database_->run("DELETE FROM pending_passes WHERE run = ? AND pass >= ?",
                             {start.run, std::uint64_t{start.from.pass}}));
  return database_->run("INSERT INTO pending_passes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        {start.run, std::uint64_t{start.from.pass}, info.submission, info.incarnation, start.from.mean,
                         start.epoch, start.attempt, start.sent_values, info.digest,
                         static_cast<int>(info.start.digest_kind), info.left_norm.value_or(0), writer.p_name_,
                         writer.chunks_name_, ByteSpan(ends_to_bytes(writer.chunk_ends_).span()), info.trailer_bytes});
}

Result<std::optional<PendingUpdate>> SiteStore::pending_pass(RunId run) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const std::optional<PendingRow> pending, pending_row(*database_, run));
  if (!pending) return std::optional<PendingUpdate>();
  FLUVIAL_ASSIGN(std::vector<PassRow> passes, pass_rows(*database_, *pending));
  if (passes.empty()) return std::optional<PendingUpdate>();
  PassRow& last = passes.back();
  PendingUpdate update;
  FLUVIAL_ASSIGN(update.chunks_, files_.open(path_of(last.chunks_file), OpenMode::kRead));
  FLUVIAL_ASSIGN(update.p_, files_.open(path_of(last.left_file), OpenMode::kRead));
  FLUVIAL_TRY(check_size(*update.chunks_, last.info.chunk_bytes + last.info.trailer_bytes));
  FLUVIAL_TRY(check_size(*update.p_, last.info.start.value_count * sizeof(float)));
  spares_.reads(last.chunks_file, update.chunks_);
  spares_.reads(last.left_file, update.p_);
  update.info_ = std::move(last.info);
  update.chunk_ends_ = std::move(last.chunk_ends);
  return std::optional(std::move(update));
}

}  // namespace fluvial::store
