// The lineage of a federation's histories, in the form that both journals keep. Inside this room only.
#pragma once

#include "core/round/history.h"
#include "core/store/sqlite.h"

namespace fluvial::store {

inline constexpr const char* kLineageTables = R"sql(
CREATE TABLE histories (
  number INTEGER PRIMARY KEY, id INTEGER NOT NULL UNIQUE, began INTEGER NOT NULL, last_run INTEGER NOT NULL);
CREATE TABLE forks (
  history INTEGER NOT NULL REFERENCES histories (number), run INTEGER NOT NULL, round INTEGER NOT NULL,
  PRIMARY KEY (history, run)) WITHOUT ROWID;
)sql";

Result<round::Lineage> read_lineage(Database& database);
// Within a transaction.
Status write_history(Database& database, std::size_t number, const round::History& history);  // 1, 2, ...
Status replace_lineage(Database& database, const round::Lineage& lineage);

}  // namespace fluvial::store
