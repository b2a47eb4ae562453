// SQLite as this room uses it: one connection, durable transactions, values in and rows out. Inside this room only.
#pragma once

#include <cstdint>
#include <functional>
#include <initializer_list>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <unordered_map>
#include <variant>

#include "core/base/bytes.h"
#include "core/base/clock.h"
#include "core/base/ids.h"
#include "core/store/sqlite_vfs.h"

struct sqlite3;
struct sqlite3_stmt;

namespace fluvial::store {

// An argument of a statement. Texts and bytes are borrowed for the call.
class SqlValue {
 public:
  SqlValue(std::nullptr_t) {}                                                  // NOLINT(google-explicit-constructor)
  SqlValue(std::int64_t value) : value_(value) {}                              // NOLINT
  SqlValue(std::uint64_t value) : value_(static_cast<std::int64_t>(value)) {}  // NOLINT
  SqlValue(int value) : value_(std::int64_t{value}) {}                         // NOLINT
  SqlValue(double value) : value_(value) {}                                    // NOLINT
  SqlValue(const std::string& text) : value_(std::string_view(text)) {}        // NOLINT
  SqlValue(std::string_view text) : value_(text) {}                            // NOLINT
  SqlValue(const Digest& digest) : value_(ByteSpan(digest)) {}                 // NOLINT
  SqlValue(ByteSpan bytes) : value_(bytes) {}                                  // NOLINT
  SqlValue(WallTime time) : value_(std::int64_t{time.time_since_epoch().count()}) {}  // NOLINT
  template <typename T>
  SqlValue(const std::optional<T>& value) {  // NOLINT
    if (value) *this = SqlValue(*value);
  }
  template <typename Tag, typename Rep>
  SqlValue(Id<Tag, Rep> id) : value_(static_cast<std::int64_t>(id.value())) {}  // NOLINT

  using Variant = std::variant<std::monostate, std::int64_t, double, std::string_view, ByteSpan>;
  const Variant& get() const { return value_; }

 private:
  Variant value_;
};
using SqlValues = std::initializer_list<SqlValue>;

// Since 1970. A damaged number becomes the first or the last instant that people can write, so that its text is one,
// too.
WallTime time_of(std::int64_t milliseconds);

// The current row of a query; what it returns lives until the next one.
class SqlRow {
 public:
  explicit SqlRow(sqlite3_stmt* statement) : statement_(statement) {}
  bool is_null(int column) const;
  std::int64_t integer(int column) const;
  std::uint64_t number(int column) const { return static_cast<std::uint64_t>(integer(column)); }
  double real(int column) const;
  std::string text(int column) const;
  ByteSpan bytes(int column) const;
  Result<Digest> digest(int column) const;
  WallTime time(int column) const;  // as time_of()
  std::optional<WallTime> optional_time(int column) const;
  template <typename T>
  T id(int column) const {
    return T(static_cast<typename T::rep>(integer(column)));
  }

 private:
  sqlite3_stmt* statement_;
};

class Database {
 public:
  // `steps` lead from nothing to version 1, from that to version 2 and so on. The steps that a file lacks are taken in
  // one transaction. A database of a newer version is refused (kFailedPrecondition). So is one that another connection
  // holds: `holder` says who that must be ("another coordinator"). What is read afterwards is durable: a process that
  // was killed, or whose fsync failed, may have left transactions that only the kernel's memory held until now.
  static Result<std::unique_ptr<Database>> open(FileSystem& files, const std::string& path,
                                                std::span<const char* const> steps, std::string_view holder);
  // Opens a database of any version to read it: takes no step. kNotFound when there is none.
  static Result<std::unique_ptr<Database>> open_as_it_is(FileSystem& files, const std::string& path,
                                                         std::string_view holder);
  ~Database();

  Status run(const char* sql, SqlValues values = {});
  using Visit = std::function<Status(const SqlRow& row)>;
  Status query(const char* sql, SqlValues values, const Visit& visit);
  // The first row's first column, when there is a row and it is not NULL.
  Result<std::optional<std::int64_t>> scalar(const char* sql, SqlValues values = {});
  std::int64_t changes() const;  // of the last run()

  // Durable when it returns ok; nothing happened when `body` fails. After an I/O error at the commit the outcome is
  // open until the database is opened again: every later transaction is refused.
  Status transact(const std::function<Status()>& body);
  const std::optional<Error>& fault() const { return broken_; }  // set: every later transaction is refused with it

  // Copies the database as it is at one moment into one durable file, which replaces `path`. `pause` is called between
  // parts and may let others use this connection: the copy holds what they commit, too.
  Status copy_to(const std::string& path, const std::function<void()>& pause);

 private:
  Database(FileSystem& files, std::string path) : files_(files), vfs_(files), path_(std::move(path)) {}
  Error error(int code) const;
  Status connect(std::string_view holder, const std::function<Status()>& prepare);
  Status prepare_schema(std::span<const char* const> steps);
  Status take_from(Database& source, const std::function<void()>& pause);
  Status take_steps(std::span<const char* const> steps);

  FileSystem& files_;
  SqliteVfs vfs_;
  std::string path_;
  sqlite3* connection_ = nullptr;
  std::unordered_map<std::string, sqlite3_stmt*> statements_;  // prepared and not running
  std::optional<Error> broken_;
};

}  // namespace fluvial::store
