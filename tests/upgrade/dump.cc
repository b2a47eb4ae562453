#include <sqlite3.h>

#include <algorithm>
#include <filesystem>
#include <memory>

#include "tests/upgrade/recording.h"

namespace fluvial::upgrade {
namespace {

struct Close {
  void operator()(sqlite3* connection) const { sqlite3_close(connection); }
  void operator()(sqlite3_stmt* statement) const { sqlite3_finalize(statement); }
};
using Connection = std::unique_ptr<sqlite3, Close>;

// "immutable": nothing is written beside the file.
Connection open(const std::string& path) {
  sqlite3* opened = nullptr;
  const std::string uri = "file:" + path + "?immutable=1";
  const int code = sqlite3_open_v2(uri.c_str(), &opened, SQLITE_OPEN_READONLY | SQLITE_OPEN_URI, nullptr);
  Connection connection(opened);
  return code == SQLITE_OK ? std::move(connection) : nullptr;
}

// Every row, its columns with a blank between them, in the order of the text.
std::vector<std::string> rows_of(sqlite3* connection, const std::string& sql) {
  sqlite3_stmt* prepared = nullptr;
  std::vector<std::string> rows;
  if (sqlite3_prepare_v2(connection, sql.c_str(), -1, &prepared, nullptr) != SQLITE_OK) return rows;
  const std::unique_ptr<sqlite3_stmt, Close> statement(prepared);
  while (sqlite3_step(prepared) == SQLITE_ROW) {
    std::string row;
    for (int column = 0; column < sqlite3_column_count(prepared); ++column) {
      const bool is_blob = sqlite3_column_type(prepared, column) == SQLITE_BLOB;
      const auto* bytes = static_cast<const char*>(sqlite3_column_blob(prepared, column));
      const std::string value(bytes == nullptr ? "" : bytes,
                              static_cast<std::size_t>(sqlite3_column_bytes(prepared, column)));
      row += (column == 0 ? "" : " ") + (is_blob ? hex_of(value) : value);
    }
    rows.push_back(std::move(row));
  }
  std::ranges::sort(rows);
  return rows;
}

Status compact(const std::string& path) {
  sqlite3* opened = nullptr;
  const int code = sqlite3_open_v2(path.c_str(), &opened, SQLITE_OPEN_READWRITE, nullptr);
  const Connection connection(opened);
  const char* const steps = "PRAGMA journal_mode=DELETE; PRAGMA page_size=1024; VACUUM; PRAGMA journal_mode=WAL";
  if (code == SQLITE_OK && sqlite3_exec(opened, steps, nullptr, nullptr, nullptr) == SQLITE_OK) return {};
  return Error{Code::kUnavailable, path + ": " + sqlite3_errmsg(opened)};
}

}  // namespace

Status compact_databases(const std::string& folder) {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder)) {
    const std::string extension = entry.path().extension().string();
    if (extension == ".sqlite" || extension == ".db") paths.push_back(entry.path().string());
  }
  for (const std::string& path : paths) FLUVIAL_TRY(compact(path));
  return {};
}

std::string dump_database(const std::string& path, bool with_rows) {
  const Connection connection = open(path);
  if (!connection) return "";
  std::string dump;
  for (const std::string& table : rows_of(connection.get(), "SELECT name FROM sqlite_master WHERE type = 'table'")) {
    for (const std::string& column : rows_of(connection.get(), "PRAGMA table_info(" + table + ")")) {
      dump += table + " column " + column + "\n";
    }
    if (!with_rows) continue;
    for (const std::string& row : rows_of(connection.get(), "SELECT * FROM " + table)) {
      dump += table + ": " + row + "\n";
    }
  }
  return dump;
}

int format_of_database(const std::string& path) {
  const Connection connection = open(path);
  const std::vector<std::string> rows =
      connection ? rows_of(connection.get(), "PRAGMA user_version") : std::vector<std::string>();
  return rows.empty() ? 0 : std::stoi(rows.front());
}

}  // namespace fluvial::upgrade
