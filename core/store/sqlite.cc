#include "core/store/sqlite.h"

#include <sqlite3.h>

#include <algorithm>
#include <utility>

namespace fluvial::store {
namespace {

constexpr int kPagesAtOnce = 1024;  // 4 MiB: a commit waits for no more than this

using Statement = std::unique_ptr<sqlite3_stmt, int (*)(sqlite3_stmt*)>;

void bind(sqlite3_stmt* statement, int index, const SqlValue& value) {
  const SqlValue::Variant& held = value.get();
  int code = SQLITE_OK;
  if (const auto* integer = std::get_if<std::int64_t>(&held)) {
    code = sqlite3_bind_int64(statement, index, *integer);
  } else if (const auto* real = std::get_if<double>(&held)) {
    code = sqlite3_bind_double(statement, index, *real);
  } else if (const auto* text = std::get_if<std::string_view>(&held)) {
    code = sqlite3_bind_text64(statement, index, text->empty() ? "" : text->data(), text->size(), SQLITE_STATIC,
                               SQLITE_UTF8);
  } else if (const auto* bytes = std::get_if<ByteSpan>(&held)) {
    code = bytes->empty() ? sqlite3_bind_zeroblob(statement, index, 0)
                          : sqlite3_bind_blob64(statement, index, bytes->data(), bytes->size(), SQLITE_STATIC);
  } else {
    code = sqlite3_bind_null(statement, index);
  }
  FLUVIAL_CHECK(code == SQLITE_OK, "a value that does not fit its statement");
}

}  // namespace

bool SqlRow::is_null(int column) const { return sqlite3_column_type(statement_, column) == SQLITE_NULL; }
std::int64_t SqlRow::integer(int column) const { return sqlite3_column_int64(statement_, column); }
double SqlRow::real(int column) const { return sqlite3_column_double(statement_, column); }
std::string SqlRow::text(int column) const { return std::string(as_text(bytes(column))); }
ByteSpan SqlRow::bytes(int column) const {
  const void* data = sqlite3_column_blob(statement_, column);
  return {static_cast<const std::byte*>(data), static_cast<std::size_t>(sqlite3_column_bytes(statement_, column))};
}
Result<Digest> SqlRow::digest(int column) const {
  Result<Digest> digest = digest_from_bytes(bytes(column));
  if (!digest.ok()) return Error{Code::kDataLoss, "the journal holds a damaged digest"};
  return digest;
}
WallTime time_of(std::int64_t milliseconds) {
  // What formats a moment counts its nanoseconds in 64 bits, which end in 2262.
  constexpr auto kLast = std::chrono::sys_days(std::chrono::year(2200) / 1 / 1).time_since_epoch();
  return WallTime(
      std::chrono::milliseconds(std::clamp(milliseconds, std::int64_t{0}, std::chrono::milliseconds(kLast).count())));
}

WallTime SqlRow::time(int column) const { return time_of(integer(column)); }
std::optional<WallTime> SqlRow::optional_time(int column) const {
  if (is_null(column)) return std::nullopt;
  return time(column);
}

Result<std::unique_ptr<Database>> Database::open(FileSystem& files, const std::string& path,
                                                 std::span<const char* const> steps, std::string_view holder) {
  std::unique_ptr<Database> database(new Database(files, path));
  FLUVIAL_TRY(database->connect(holder, [&] { return database->prepare_schema(steps); }));
  return database;
}

Result<std::unique_ptr<Database>> Database::open_as_it_is(FileSystem& files, const std::string& path,
                                                          std::string_view holder) {
  FLUVIAL_ASSIGN(const bool there, files.exists(path));
  if (!there) return Error{Code::kNotFound, path + " is not there"};
  std::unique_ptr<Database> database(new Database(files, path));
  FLUVIAL_TRY(database->connect(holder, [&]() -> Status {
    for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA temp_store=MEMORY", "PRAGMA user_version"}) {
      FLUVIAL_TRY(database->query(pragma, {}, [](const SqlRow&) -> Status { return {}; }));
    }
    return {};
  }));
  return database;
}

Status Database::connect(std::string_view holder, const std::function<Status()>& prepare) {
  int code = sqlite3_open_v2(path_.c_str(), &connection_, SQLITE_OPEN_READWRITE | SQLITE_OPEN_CREATE, vfs_.name());
  if (code != SQLITE_OK) return error(code);
  sqlite3_extended_result_codes(connection_, 1);
  Status status = prepare();
  code = sqlite3_errcode(connection_);
  if (!status.ok() && (code & 0xff) == SQLITE_BUSY) {
    return Error{Code::kFailedPrecondition,
                 std::string(holder) + " holds " + path_ + ": stop it, or use another folder"};
  }
  return status;
}

Database::~Database() {
  for (const auto& [sql, statement] : statements_) sqlite3_finalize(statement);
  sqlite3_close(connection_);
}

// The file is locked by the first statement that reads it and stays so (EXCLUSIVE) until close.
Status Database::prepare_schema(std::span<const char* const> steps) {
  for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=WAL", "PRAGMA synchronous=FULL",
                             "PRAGMA foreign_keys=ON", "PRAGMA temp_store=MEMORY"}) {
    FLUVIAL_TRY(query(pragma, {}, [](const SqlRow&) -> Status { return {}; }));
  }
  // Reads the predecessor's log, writes it into the database itself and fsyncs that.
  FLUVIAL_TRY(query("PRAGMA wal_checkpoint(PASSIVE)", {}, [](const SqlRow&) -> Status { return {}; }));
  FLUVIAL_ASSIGN(const std::optional<std::int64_t> found, scalar("PRAGMA user_version"));
  const auto version = static_cast<std::int64_t>(steps.size());
  if (found == version) return {};
  if (!found || *found < 0 || *found > version) {
    return Error{Code::kFailedPrecondition, path_ + " was written by a newer version of Fluvial (format " +
                                                std::to_string(found.value_or(0)) + ", this one knows 1 to " +
                                                std::to_string(version) +
                                                "): start that version, or restore a backup from before the upgrade"};
  }
  return transact([&]() -> Status {
    FLUVIAL_TRY(take_steps(steps.subspan(static_cast<std::size_t>(*found))));
    return run(("PRAGMA user_version=" + std::to_string(version)).c_str());
  });
}

Status Database::take_steps(std::span<const char* const> steps) {
  for (const char* step : steps) {
    const int code = sqlite3_exec(connection_, step, nullptr, nullptr, nullptr);
    if (code != SQLITE_OK) return error(code);
  }
  return {};
}

Error Database::error(int code) const {
  Code kind = Code::kInternal;
  switch (code & 0xff) {
    case SQLITE_FULL: kind = Code::kResourceExhausted; break;
    case SQLITE_IOERR:
    case SQLITE_CANTOPEN: kind = Code::kUnavailable; break;
    case SQLITE_BUSY: kind = Code::kFailedPrecondition; break;
    case SQLITE_CORRUPT:
    case SQLITE_NOTADB: kind = Code::kDataLoss; break;
    case SQLITE_CONSTRAINT: kind = Code::kAlreadyExists; break;
    default: break;
  }
  std::string text = path_ + ": " + (connection_ != nullptr ? sqlite3_errmsg(connection_) : sqlite3_errstr(code));
  const bool from_files = kind == Code::kUnavailable || kind == Code::kResourceExhausted;
  if (from_files && !vfs_.last_error().empty()) text += " (" + vfs_.last_error() + ")";
  return {kind, text};
}

// Statements are kept for reuse; one that is running already (a query within its own rows) gets a twin.
Status Database::query(const char* sql, SqlValues values, const Visit& visit) {
  Statement statement(nullptr, &sqlite3_finalize);
  if (const auto kept = statements_.find(sql); kept != statements_.end()) {
    statement.reset(kept->second);
    statements_.erase(kept);
  } else {
    sqlite3_stmt* prepared = nullptr;
    const int code = sqlite3_prepare_v3(connection_, sql, -1, SQLITE_PREPARE_PERSISTENT, &prepared, nullptr);
    statement.reset(prepared);
    if (code != SQLITE_OK) return error(code);
  }
  int index = 0;
  for (const SqlValue& value : values) bind(statement.get(), ++index, value);
  Status status;
  int code = SQLITE_ROW;
  while (status.ok() && (code = sqlite3_step(statement.get())) == SQLITE_ROW) status = visit(SqlRow(statement.get()));
  if (status.ok() && code != SQLITE_DONE) return error(code);  // a failed statement is not kept
  sqlite3_reset(statement.get());
  sqlite3_clear_bindings(statement.get());
  sqlite3_stmt* done = statement.release();
  if (!statements_.try_emplace(sql, done).second) sqlite3_finalize(done);
  return status;
}

Status Database::run(const char* sql, SqlValues values) {
  return query(sql, values, [](const SqlRow&) -> Status { return {}; });
}

Result<std::optional<std::int64_t>> Database::scalar(const char* sql, SqlValues values) {
  std::optional<std::int64_t> found;
  FLUVIAL_TRY(query(sql, values, [&](const SqlRow& row) -> Status {
    if (!found && !row.is_null(0)) found = row.integer(0);
    return {};
  }));
  return found;
}

std::int64_t Database::changes() const { return sqlite3_changes(connection_); }

Status Database::transact(const std::function<Status()>& body) {
  if (broken_) return *broken_;
  FLUVIAL_TRY(run("BEGIN IMMEDIATE"));
  Status status = body();
  const bool committing = status.ok();
  if (committing) status = run("COMMIT");
  if (status.ok()) return {};
  if (sqlite3_get_autocommit(connection_) == 0) static_cast<void>(run("ROLLBACK"));
  const Code code = status.error().code;
  if (committing && code != Code::kResourceExhausted) {
    broken_ = Error{Code::kUnavailable, "the journal failed at an earlier commit (" + status.error().message +
                                            "): start again to read what is on the disk"};
  }
  return status;
}

// Copies into a file beside `path`, which takes that name once it is whole. The copy has no journal: one that was cut
// short is thrown away.
Status Database::copy_to(const std::string& path, const std::function<void()>& pause) {
  const std::string temporary = temporary_of(path);
  for (const char* suffix : {"", "-wal", "-journal"}) {
    for (const std::string& old : {path + suffix, temporary + suffix}) {
      const Status removed = files_.remove(old);
      if (!removed.ok() && removed.error().code != Code::kNotFound) return removed;
    }
  }
  Status copied;
  {
    Database copy(files_, temporary);
    copied = copy.connect("another backup", [&]() -> Status {
      for (const char* pragma : {"PRAGMA locking_mode=EXCLUSIVE", "PRAGMA journal_mode=MEMORY",
                                 "PRAGMA synchronous=FULL", "PRAGMA temp_store=MEMORY"}) {
        FLUVIAL_TRY(copy.query(pragma, {}, [](const SqlRow&) -> Status { return {}; }));
      }
      return copy.take_from(*this, pause);
    });
  }
  if (copied.ok()) copied = files_.rename(temporary, path);
  if (copied.ok()) return files_.sync_folder(folder_of(path));
  static_cast<void>(files_.remove(temporary));
  return copied;
}

Status Database::take_from(Database& source, const std::function<void()>& pause) {
  sqlite3_backup* backup = sqlite3_backup_init(connection_, "main", source.connection_, "main");
  if (backup == nullptr) return error(sqlite3_errcode(connection_));
  int code = SQLITE_OK;
  while ((code = sqlite3_backup_step(backup, kPagesAtOnce)) == SQLITE_OK) pause();
  const int finished = sqlite3_backup_finish(backup);
  if (finished != SQLITE_OK) return error(finished);
  return code == SQLITE_DONE ? Status() : Status(error(code));
}

}  // namespace fluvial::store
