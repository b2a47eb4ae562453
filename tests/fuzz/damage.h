// A database that somebody else wrote, or that a disk has damaged: rows whose columns hold anything, and bytes that
// were changed in the file itself.
#pragma once

#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "core/store/file_system.h"
#include "core/store/sqlite.h"
#include "tests/fuzz/input.h"

namespace fluvial::fuzz {

// An error about one's own disk says what is wrong; what it quotes of a damaged row may be of any kind.
template <typename T>
void check_said(const Result<T>& result) {
  FLUVIAL_CHECK(result.ok() || !result.error().message.empty(), "an error says what was wrong");
}

struct Column {
  std::string table;
  std::string name;
};

// Of every table that the database at `path` has now.
inline std::vector<Column> columns_of(store::FileSystem& files, const std::string& path) {
  const auto database = store::Database::open_as_it_is(files, path, "the fuzzer").value();
  std::vector<std::string> tables;
  FLUVIAL_CHECK(database
                    ->query("SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name", {},
                            [&](const store::SqlRow& row) -> Status { return tables.push_back(row.text(0)), Status{}; })
                    .ok(),
                "a database has tables");
  std::vector<Column> columns;
  for (const std::string& table : tables) {
    FLUVIAL_CHECK(database
                      ->query(("PRAGMA table_info(" + table + ")").c_str(), {},
                              [&](const store::SqlRow& row) -> Status {
                                return columns.push_back({table, row.text(1)}), Status{};
                              })
                      .ok(),
                  "a table has columns");
  }
  return columns;
}

// What a column may hold that its table's declaration does not mean.
class AnyValue {
 public:
  explicit AnyValue(Input& input) : kind_(input.below(8)) {
    switch (kind_) {
      case 0: number_ = input.number<std::int64_t>(); break;
      case 1: number_ = input.byte(); break;
      case 2: number_ = -static_cast<std::int64_t>(input.byte()); break;
      case 3: real_ = static_cast<double>(input.number<std::int64_t>()) * 1e10; break;
      case 4:
      case 5:
      case 6: text_ = input.text(); break;
      default: break;
    }
  }
  store::SqlValue get() const {
    if (kind_ <= 2) return number_;
    if (kind_ == 3) return real_;
    if (kind_ == 4) return as_byte_span(text_);
    if (kind_ <= 6) return std::string_view(text_);
    return nullptr;
  }

 private:
  std::size_t kind_;
  std::int64_t number_ = 0;
  double real_ = 0;
  std::string text_;
};

// One row of a table gets another value, or is gone. What the table's own constraints refuse does not happen.
inline void damage_row(store::Database& database, const std::vector<Column>& columns, Input& input) {
  const Column& column = columns[input.byte() % columns.size()];
  const std::uint64_t row = input.below(4);
  const std::string where =
      " WHERE " + column.name + " IS (SELECT " + column.name + " FROM " + column.table + " LIMIT 1 OFFSET ?)";
  if (input.below(16) == 0) {
    static_cast<void>(database.run(("DELETE FROM " + column.table + where).c_str(), {row}));
    return;
  }
  const AnyValue value(input);
  static_cast<void>(
      database.run(("UPDATE " + column.table + " SET " + column.name + " = ?" + where).c_str(), {value.get(), row}));
}

inline void damage_rows(store::FileSystem& files, const std::string& path, const std::vector<Column>& columns,
                        Input& input) {
  const auto database = store::Database::open_as_it_is(files, path, "the fuzzer");
  FLUVIAL_CHECK(database.ok(), "a whole database opens");
  for (std::size_t rows = 1 + input.below(4); rows > 0; --rows) damage_row(**database, columns, input);
}

inline void damage_bytes(store::FileSystem& files, const std::string& path, Input& input) {
  const auto file = files.open(path, store::OpenMode::kReadWrite).value();
  const std::uint64_t size = file->size().value();
  for (std::size_t parts = 1 + input.below(8); parts > 0 && size > 0; --parts) {
    const std::uint64_t at = input.number<std::uint32_t>() % size;
    const ByteSpan bytes = input.take(1 + input.below(8));
    FLUVIAL_CHECK(file->write_at(at, bytes).ok(), "a file in memory is written");
  }
  if (input.below(16) == 15) FLUVIAL_CHECK(file->truncate(input.number<std::uint32_t>() % (size + 1)).ok(), "or cut");
}

}  // namespace fluvial::fuzz
