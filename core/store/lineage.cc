#include "core/store/lineage.h"

#include <utility>

namespace fluvial::store {

Result<round::Lineage> read_lineage(Database& database) {
  round::Lineage lineage;
  FLUVIAL_TRY(
      database.query("SELECT id, began, last_run FROM histories ORDER BY number", {}, [&](const SqlRow& row) -> Status {
        lineage.push_back({row.id<round::HistoryId>(0), row.id<Epoch>(1), row.id<RunId>(2), {}});
        return {};
      }));
  FLUVIAL_TRY(database.query("SELECT history, run, round FROM forks ORDER BY history, run", {},
                             [&](const SqlRow& row) -> Status {
                               const std::uint64_t number = row.number(0);
                               if (number == 0 || number > lineage.size()) {
                                 return Error{Code::kDataLoss, "the journal holds a fork of an unknown history"};
                               }
                               lineage[number - 1].forks.push_back({row.id<RunId>(1), row.id<RoundId>(2)});
                               return {};
                             }));
  return lineage;
}

Status write_history(Database& database, std::size_t number, const round::History& history) {
  const std::uint64_t key = number;
  FLUVIAL_TRY(database.run("INSERT INTO histories (number, id, began, last_run) VALUES (?, ?, ?, ?)",
                           {key, history.id, history.began, history.last_run}));
  for (const round::Fork& fork : history.forks) {
    FLUVIAL_TRY(database.run("INSERT INTO forks VALUES (?, ?, ?)", {key, fork.run, fork.round}));
  }
  return {};
}

Status replace_lineage(Database& database, const round::Lineage& lineage) {
  FLUVIAL_TRY(database.run("DELETE FROM forks"));
  FLUVIAL_TRY(database.run("DELETE FROM histories"));
  for (std::size_t i = 0; i < lineage.size(); ++i) FLUVIAL_TRY(write_history(database, i + 1, lineage[i]));
  return {};
}

}  // namespace fluvial::store
