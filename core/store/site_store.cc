#include "core/store/site_store.h"

#include <algorithm>
#include <cmath>
#include <set>
#include <utility>

#include "core/base/format.h"
#include "core/round/probe.h"
#include "core/store/plan_json.h"
#include "core/store/site_rows.h"
#include "core/store/site_schema.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr std::string_view kTensorFolder = "tensors";
constexpr std::string_view kSpareFolder = "spare";

std::string join_names(const std::vector<std::string>& names) {
  std::string text;
  for (const std::string& name : names) text += (text.empty() ? "" : " ") + name;
  return text;
}

std::vector<std::string> split_names(std::string_view text) {
  std::vector<std::string> names;
  while (!text.empty()) {
    const std::size_t end = std::min(text.find(' '), text.size());
    names.emplace_back(text.substr(0, end));
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return names;
}

// A submission's own rules, so that nobody reads or reserves by a row that cannot be one.
Status check_pending(const PendingRow& row) {
  const PendingStart& start = row.info.start;
  FLUVIAL_TRY(check_file_name(row.p_file));
  FLUVIAL_TRY(check_file_name(row.chunks_file));
  const std::uint64_t integers_bytes = start.integer_count * sizeof(std::int64_t);
  const bool sizes_fit =
      start.passes > 0 && start.passes <= round::kPassesMost &&
      start.sent_values <= round::kModelBytesMax / sizeof(float) && start.state_bytes <= kStateBytesMax &&
      start.integer_count <= round::kIntegerCountMax && start.value_count <= round::kModelBytesMax / sizeof(float) &&
      row.info.trailer_bytes >= integers_bytes && row.info.trailer_bytes <= integers_bytes + round::kProbeBytes;
  return sizes_fit ? Status{} : Status{damaged_row("submission")};
}

constexpr const char* kPendingColumns =
    "SELECT run, round, submission, incarnation, weight, codec, base, metrics, value_count, integer_count, lossless, "
    "digest, p_norm, p_file, chunks_file, chunk_ends, chunk_values, workers, trailer_bytes, fit_value_max, fit_factor, "
    "residual_norm_max, residual_age_max, digest_kind, left_norm, late_factor, state_bytes, sent_values, passes, "
    "schema "
    "FROM pending ";
Result<PendingRow> pending_from(const SqlRow& row) {
  PendingRow found;
  PendingStart& start = found.info.start;
  start.run = row.id<RunId>(0);
  start.round = row.id<RoundId>(1);
  found.info.submission = row.number(2);
  found.info.incarnation = row.id<Incarnation>(3);
  start.weight = row.number(4);
  start.codec = row.text(5);
  FLUVIAL_ASSIGN(start.base, row.digest(6));
  FLUVIAL_ASSIGN(start.metrics, metrics_from_json(row.text(7)));
  start.value_count = row.number(8);
  start.integer_count = row.number(9);
  start.lossless = row.integer(10) != 0;
  FLUVIAL_ASSIGN(found.info.digest, row.digest(11));
  found.info.p_norm = row.real(12);
  found.p_file = row.text(13);
  found.chunks_file = row.text(14);
  FLUVIAL_ASSIGN(found.chunk_ends, ends_from_bytes(row.bytes(15)));
  start.chunk_count = found.chunk_ends.size();
  start.chunk_values = row.number(16);
  start.workers = split_names(row.text(17));
  found.info.trailer_bytes = row.number(18);
  start.fit = {static_cast<float>(row.real(19)), static_cast<float>(row.real(20))};
  start.bounds = {row.real(21), row.number(22)};
  if (row.number(23) >= kDigestKinds) return damaged_row("submission: a digest of unknown kind");
  start.digest_kind = static_cast<DigestKind>(row.number(23));
  if (row.real(24) >= 0) found.info.left_norm = row.real(24);
  FLUVIAL_ASSIGN(start.late_factor, factor_from(row.real(25)));
  start.state_bytes = row.number(26);
  start.sent_values = row.number(27);
  start.passes = static_cast<std::uint32_t>(row.number(28));
  start.schema = row.text(29);
  found.info.chunk_bytes = found.chunk_ends.empty() ? 0 : found.chunk_ends.back();
  FLUVIAL_TRY(check_pending(found));
  return found;
}

std::string round_name(RunId run, RoundId round) {
  return "run " + std::to_string(run.value()) + " round " + std::to_string(round.value());
}

}  // namespace

Result<std::optional<PendingRow>> pending_row(Database& database, RunId run) {
  std::optional<PendingRow> found;
  const std::string sql = std::string(kPendingColumns) + "WHERE run = ?";
  FLUVIAL_TRY(database.query(sql.c_str(), {run}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(found, pending_from(row));
    return {};
  }));
  return found;
}

// Why a residual is not kept; empty if it is.
std::string beyond(const ResidualInfo& residual, const ResidualBounds& bounds) {
  if (residual.zero) return {};
  if (bounds.norm_max > 0 && residual.norm > bounds.norm_max) {
    return format_text("its norm is {}, beyond the plan's residual_norm_max of {}", residual.norm, bounds.norm_max);
  }
  if (bounds.age_max_rounds > 0 && residual.age_rounds > bounds.age_max_rounds) {
    return format_text("unspent for {} rounds, beyond the plan's residual_age_max_rounds of {}; its norm was {}",
                       residual.age_rounds, bounds.age_max_rounds, residual.norm);
  }
  return {};
}

SiteStore::SiteStore(FileSystem& files, std::string folder, std::unique_ptr<Database> database, LeaveBy leave)
    : files_(files),
      folder_(std::move(folder)),
      database_(std::move(database)),
      spares_(files_, join_path(folder_, kTensorFolder), join_path(folder_, kSpareFolder)),
      leave_(std::move(leave)) {}
SiteStore::~SiteStore() = default;

std::string SiteStore::path_of(const std::string& name) const {
  return join_path(join_path(folder_, kTensorFolder), name);
}
std::string SiteStore::new_name() {
  return "t-" + std::to_string(incarnation_.value()) + "-" + std::to_string(++names_);
}
// Best effort: a file that stays is swept when the folder is opened again.
void SiteStore::remove_file(const std::string& name) {
  spares_.failed();
  if (!name.empty() && check_file_name(name).ok()) static_cast<void>(files_.remove(path_of(name)));
}
void SiteStore::retire(const std::string& name) {
  if (!name.empty() && check_file_name(name).ok()) spares_.retire(name);
}

std::uint64_t SiteStore::files_reused() {
  const std::lock_guard lock(mutex_);
  return spares_.reused();
}

Result<std::unique_ptr<SiteStore>> SiteStore::open(FileSystem& files, const std::string& folder,
                                                   std::uint64_t enrolled_before, LeaveBy leave) {
  FLUVIAL_TRY(files.make_folder(join_path(folder, kTensorFolder)));
  FLUVIAL_ASSIGN(std::unique_ptr<Database> database,
                 Database::open(files, join_path(folder, "site.db"), kSiteSteps, "another agent"));
  std::unique_ptr<SiteStore> store(new SiteStore(files, folder, std::move(database), std::move(leave)));
  FLUVIAL_TRY(store->load(enrolled_before));
  FLUVIAL_TRY(store->sweep());
  FLUVIAL_TRY(store->spares_.open_folder());
  return store;
}

std::optional<Error> SiteStore::fault() {
  const std::lock_guard lock(mutex_);
  return database_->fault();
}

// A commit that reports an error may still have happened. Only if it is known not to have happened may the files that
// it names be removed.
bool SiteStore::may_be_recorded(const Status& recorded) const {
  return recorded.ok() || database_->fault().has_value();
}

Status SiteStore::load(std::uint64_t enrolled_before) {
  FLUVIAL_TRY(database_->transact([&] {
    return database_->run("UPDATE site SET incarnation = max(incarnation, ?) + 1 WHERE one = 1",
                          {enrolled_before << 32});
  }));
  return database_->query("SELECT incarnation, submissions FROM site", {}, [&](const SqlRow& row) -> Status {
    incarnation_ = row.id<Incarnation>(0);
    submissions_ = row.number(1);
    return {};
  });
}

Status SiteStore::sweep() {
  std::set<std::string> named;
  for (const char* const sql : {"SELECT file FROM residuals UNION SELECT chunks_file FROM residuals",
                                "SELECT p_file FROM pending UNION SELECT chunks_file FROM pending",
                                "SELECT left_file FROM pending_passes UNION SELECT chunks_file FROM pending_passes"}) {
    FLUVIAL_TRY(database_->query(sql, {}, [&](const SqlRow& row) -> Status {
      named.insert(row.text(0));
      return {};
    }));
  }
  FLUVIAL_ASSIGN(const std::vector<std::string> names, files_.list(join_path(folder_, kTensorFolder)));
  for (const std::string& name : names) {
    if (!named.contains(name)) FLUVIAL_TRY(files_.remove(path_of(name)));
  }
  return {};
}

Result<std::optional<LastOutcome>> SiteStore::last_outcome_locked(RunId run) {
  std::optional<LastOutcome> found;
  FLUVIAL_TRY(
      database_->query("SELECT round, outcome FROM outcomes WHERE run = ?", {run}, [&](const SqlRow& row) -> Status {
        found = LastOutcome{row.id<RoundId>(0), static_cast<Outcome>(row.integer(1))};
        return {};
      }));
  return found;
}

Result<std::optional<LastOutcome>> SiteStore::last_outcome(RunId run) {
  const std::lock_guard lock(mutex_);
  return last_outcome_locked(run);
}

Status SiteStore::may_write(RunId run) {
  FLUVIAL_ASSIGN(const std::optional<PendingRow> before, pending_row(*database_, run));
  if (!before) return {};
  return Error{Code::kFailedPrecondition,
               round_name(run, before->info.start.round) + ": the submission before has no outcome yet"};
}

Status SiteStore::may_begin(RunId run, RoundId round) {
  FLUVIAL_TRY(may_write(run));
  FLUVIAL_ASSIGN(const std::optional<LastOutcome> last, last_outcome_locked(run));
  if (!last || round > last->round) return {};
  return Error{Code::kFailedPrecondition, round_name(run, round) + " is resolved already"};
}

Result<std::unique_ptr<PendingWriter>> SiteStore::begin_pending(PendingStart start) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_CHECK(!start.lossless || start.fit.whole(), "chunks that are p, and are not");
  FLUVIAL_CHECK(!start.lossless || start.state_bytes == 0, "a state behind chunks");
  FLUVIAL_TRY(may_begin(start.run, start.round));
  std::unique_ptr<PendingWriter> writer(new PendingWriter);
  writer->store_ = this;
  writer->chunks_name_ = new_name();
  writer->p_name_ = start.lossless ? writer->chunks_name_ : new_name();
  using Size = SpareFiles::Size;
  FLUVIAL_ASSIGN(writer->chunks_, spares_.open(writer->chunks_name_, start.lossless ? Size::kLarge : Size::kSmall));
  writer->p_ = writer->chunks_;
  if (!start.lossless) {
    FLUVIAL_ASSIGN(writer->p_, spares_.open(writer->p_name_, Size::kLarge));
  }
  writer->info_.incarnation = incarnation_;
  writer->info_.submission = ++submissions_;
  writer->info_.start = std::move(start);
  return writer;
}

namespace {

std::uint64_t p_bytes(const PendingStart& start) { return start.value_count * sizeof(float) + start.state_bytes; }

}  // namespace

Status SiteStore::sync(const PendingWriter& writer) {
  const bool has_p = writer.p_.file != writer.chunks_.file;
  const PendingInfo& info = writer.info_;
  FLUVIAL_TRY(SpareFiles::cut(writer.chunks_, info.chunk_bytes + info.trailer_bytes));
  if (has_p) FLUVIAL_TRY(SpareFiles::cut(writer.p_, p_bytes(info.start)));
  FLUVIAL_TRY(writer.chunks_.file->sync());
  if (has_p) FLUVIAL_TRY(writer.p_.file->sync());
  return files_.sync_folder(join_path(folder_, kTensorFolder));
}

Status SiteStore::record_pending(const PendingWriter& writer) {
  const PendingInfo& info = writer.info_;
  const PendingStart& start = info.start;
  return database_->run(
      "INSERT INTO pending VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, "
      "?, ?)",
      {start.run,
       start.round,
       info.submission,
       info.incarnation,
       start.weight,
       start.codec,
       start.base,
       metrics_to_json(start.metrics),
       start.value_count,
       start.integer_count,
       start.lossless ? 1 : 0,
       info.digest,
       info.p_norm,
       writer.p_name_,
       writer.chunks_name_,
       ByteSpan(ends_to_bytes(writer.chunk_ends_).span()),
       start.chunk_values,
       join_names(start.workers),
       info.trailer_bytes,
       static_cast<double>(start.fit.value_max),
       static_cast<double>(start.fit.factor),
       start.bounds.norm_max,
       start.bounds.age_max_rounds,
       static_cast<int>(start.digest_kind),
       info.left_norm.value_or(-1),
       static_cast<double>(start.late_factor),
       start.state_bytes,
       start.sent_values,
       std::uint64_t{start.passes},
       start.schema});
}

Result<PendingUpdate> SiteStore::finish(PendingWriter& writer) {
  const std::lock_guard lock(mutex_);
  const PendingInfo& info = writer.info_;
  FLUVIAL_TRY(sync(writer));
  const Status recorded = database_->transact([&]() -> Status {
    FLUVIAL_TRY(database_->run("UPDATE site SET submissions = max(submissions, ?)", {info.submission}));
    return writer.pass_ ? record_pass(writer) : record_pending(writer);
  });
  writer.finished_ = may_be_recorded(recorded);
  FLUVIAL_TRY(recorded);
  spares_.wrote(writer.chunks_name_, writer.chunks_, info.chunk_bytes + info.trailer_bytes);
  if (writer.p_.file != writer.chunks_.file) spares_.wrote(writer.p_name_, writer.p_, p_bytes(info.start));
  for (const std::string& name : writer.replaces_) retire(name);
  return writer.update();
}

Result<std::optional<PendingUpdate>> SiteStore::pending(RunId run) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(std::optional<PendingRow> row, pending_row(*database_, run));
  if (!row) return std::optional<PendingUpdate>();
  PendingUpdate update;
  FLUVIAL_ASSIGN(update.chunks_, files_.open(path_of(row->chunks_file), OpenMode::kRead));
  update.p_ = update.chunks_;
  if (row->p_file != row->chunks_file) {
    FLUVIAL_ASSIGN(update.p_, files_.open(path_of(row->p_file), OpenMode::kRead));
  }
  FLUVIAL_TRY(check_size(*update.chunks_, row->info.chunk_bytes + row->info.trailer_bytes));
  FLUVIAL_TRY(check_size(*update.p_, p_bytes(row->info.start)));
  spares_.reads(row->chunks_file, update.chunks_);
  spares_.reads(row->p_file, update.p_);
  update.info_ = std::move(row->info);
  update.chunk_ends_ = std::move(row->chunk_ends);
  return std::optional(std::move(update));
}

Result<std::vector<PendingInfo>> SiteStore::all_pending() {
  const std::lock_guard lock(mutex_);
  std::vector<PendingInfo> found;
  const std::string sql = std::string(kPendingColumns) + "ORDER BY run";
  FLUVIAL_TRY(database_->query(sql.c_str(), {}, [&](const SqlRow& row) -> Status {
    FLUVIAL_ASSIGN(PendingRow pending, pending_from(row));
    found.push_back(std::move(pending.info));
    return {};
  }));
  return found;
}

Result<std::unique_ptr<ResidualWriter>> SiteStore::begin_residual(RunId run) {
  const std::lock_guard lock(mutex_);
  std::unique_ptr<ResidualWriter> writer(new ResidualWriter);
  writer->store_ = this;
  writer->run_ = run;
  writer->name_ = new_name();
  FLUVIAL_ASSIGN(writer->slot_, spares_.open(writer->name_, SpareFiles::Size::kLarge));
  return writer;
}

Result<Carried> SiteStore::resolve(RunId run, RoundId round, Outcome outcome, std::optional<double> left_norm) {
  FLUVIAL_CHECK(outcome != Outcome::kPending, "a pending outcome resolves nothing");
  FLUVIAL_CHECK(!left_norm || outcome == Outcome::kCounted, "a residual out of place");
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const ResidualRow old, residual_row(*database_, run));
  FLUVIAL_ASSIGN(const std::optional<LastOutcome> last, last_outcome_locked(run));
  if (last && (round < last->round || (round == last->round && outcome == last->outcome))) return Carried{old.info, {}};
  if (last && round == last->round) {
    return Error{Code::kFailedPrecondition, round_name(run, round) + " is " + std::string(outcome_name(last->outcome)) +
                                                ", not " + std::string(outcome_name(outcome))};
  }
  FLUVIAL_ASSIGN(const std::optional<PendingRow> pending, pending_row(*database_, run));
  if (!pending || pending->info.start.round != round) {
    return Error{Code::kFailedPrecondition, round_name(run, round) + ": there is no submission to resolve"};
  }

  FLUVIAL_ASSIGN(const std::vector<PassRow> passes, pass_rows(*database_, *pending));
  ResidualRow now = old;
  if (outcome == Outcome::kCounted) {
    FLUVIAL_ASSIGN(now, left_by(*pending, passes, left_norm));
  } else if (outcome == Outcome::kLate) {
    now = whole_of(*pending, old.info.age_rounds + 1);
  } else if (!old.info.zero) {
    ++now.info.age_rounds;
  }
  std::string dropped = beyond(now.info, pending->info.start.bounds);
  if (!dropped.empty()) now = {};
  const std::vector<std::string>& workers = pending->info.start.workers;
  const Digest& digest = passes.empty() ? pending->info.digest : passes.back().info.digest;
  FLUVIAL_TRY(database_->transact([&] { return write_outcome(run, round, outcome, digest, now, workers); }));
  std::set<std::string> files = old.files();
  files.merge(files_of(*pending, passes));
  const std::set<std::string> kept = now.files();
  for (const std::string& name : files) {
    if (!kept.contains(name)) retire(name);
  }
  return Carried{now.info, std::move(dropped)};
}

// The writer's file is whole before the record names it, and is removed unless the record may name it.
Status SiteStore::put_in_force(const ResidualRow& now, ResidualWriter& writer, const std::function<Status()>& record) {
  const bool named = now.file == writer.name_;
  const std::uint64_t bytes = named ? writer.value_count_ * sizeof(float) + writer.state_bytes_ : 0;
  if (named) FLUVIAL_TRY(SpareFiles::cut(writer.slot_, bytes));
  if (named) FLUVIAL_TRY(writer.slot_.file->sync());
  if (named) FLUVIAL_TRY(files_.sync_folder(join_path(folder_, kTensorFolder)));
  const Status recorded = record();
  if (named) writer.kept_ = may_be_recorded(recorded);
  if (named && recorded.ok()) spares_.wrote(writer.name_, writer.slot_, bytes);
  return recorded;
}

// Puts `now` in force and removes the submission.
Status SiteStore::write_outcome(RunId run, RoundId round, Outcome outcome, const std::optional<Digest>& digest,
                                const ResidualRow& now, const std::vector<std::string>& workers) {
  FLUVIAL_TRY(write_residual(*database_, run, now));
  FLUVIAL_TRY(database_->run("DELETE FROM pending_passes WHERE run = ?", {run}));
  FLUVIAL_TRY(database_->run("DELETE FROM pending WHERE run = ?", {run}));
  FLUVIAL_TRY(record_workers(run, round, outcome, workers));
  if (!digest) return {};
  return database_->run(
      "INSERT INTO outcomes (run, round, outcome, digest) VALUES (?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET round = "
      "excluded.round, outcome = excluded.outcome, digest = excluded.digest",
      {run, round, static_cast<int>(outcome), *digest});
}

Status SiteStore::record_workers(RunId run, RoundId round, Outcome outcome, const std::vector<std::string>& workers) {
  for (const std::string& worker : workers) {
    FLUVIAL_TRY(
        database_->run("INSERT INTO worker_outcomes VALUES (?, ?, ?, ?) ON CONFLICT (run, worker) DO UPDATE SET "
                       "round = excluded.round, outcome = excluded.outcome",
                       {run, worker, round, static_cast<int>(outcome)}));
  }
  if (workers.empty()) return {};
  return database_->run(
      "DELETE FROM worker_outcomes WHERE run = ? AND worker NOT IN (SELECT worker FROM worker_outcomes "
      "WHERE run = ? ORDER BY round DESC, worker LIMIT ?)",
      {run, run, std::uint64_t{kWorkerOutcomesMax}});
}

Result<Carried> SiteStore::fold(RunId run, RoundId round, std::unique_ptr<ResidualWriter> p,
                                const ResidualBounds& bounds, const std::vector<std::string>& workers, bool lost,
                                float late_factor) {
  FLUVIAL_CHECK(p && p->run_ == run, "a residual out of place");
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(lost ? may_write(run) : may_begin(run, round));
  FLUVIAL_ASSIGN(const ResidualRow old, residual_row(*database_, run));
  const double norm = std::sqrt(p->square_sum_) * static_cast<double>(late_factor);
  ResidualRow now = {{false, p->value_count_, old.info.age_rounds + 1, norm}, p->name_};
  now.factor = late_factor;
  now.state_bytes = p->state_bytes_;
  now.state_codec = p->codec_;
  std::string dropped = beyond(now.info, bounds);
  if (!dropped.empty()) now = {};
  const std::optional<Digest> digest = lost ? std::optional<Digest>() : Digest{};
  FLUVIAL_TRY(put_in_force(now, *p, [&] {
    return database_->transact([&] { return write_outcome(run, round, Outcome::kLate, digest, now, workers); });
  }));
  for (const std::string& name : old.files()) retire(name);
  return Carried{now.info, std::move(dropped)};
}

}  // namespace fluvial::store
