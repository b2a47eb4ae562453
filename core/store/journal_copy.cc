#include "core/store/journal_copy.h"

#include <iterator>
#include <memory>
#include <set>
#include <string>
#include <utility>

#include "core/store/journal_schema.h"
#include "core/store/model_store.h"
#include "core/store/plan_json.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

Status check_whole(Database& database, const std::string& path) {
  std::string verdict;
  FLUVIAL_TRY(database.query("PRAGMA quick_check(1)", {}, [&](const SqlRow& row) -> Status {
    verdict = row.text(0);
    return {};
  }));
  if (verdict == "ok") return {};
  return Error{Code::kDataLoss, path + ": the journal is damaged: " + verdict};
}

// Version 3 brought them.
Result<std::uint64_t> count_restores(Database& database) {
  FLUVIAL_ASSIGN(const auto there,
                 database.scalar("SELECT 1 FROM sqlite_master WHERE type = 'table' AND name = 'histories'"));
  if (!there) return std::uint64_t{0};
  FLUVIAL_ASSIGN(const auto count, database.scalar("SELECT count(*) FROM histories"));
  return static_cast<std::uint64_t>(count.value_or(0));
}

Status read_runs(Database& database, JournalContent& content) {
  const char* const sql = content.format < 8 ? "SELECT id, status, initial_model, 0, plan FROM runs ORDER BY id"
                          : content.format < 11
                              ? "SELECT id, status, initial_model, keeps_optimizer, plan FROM runs ORDER BY id"
                              : "SELECT id, status, initial_model, keeps_optimizer OR codec_state IS NOT NULL, plan "
                                "FROM runs ORDER BY id";
  std::set<RunId> by_difference;
  FLUVIAL_TRY(database.query(sql, {}, [&](const SqlRow& row) -> Status {
    const RunId run = row.id<RunId>(0);
    const auto status = static_cast<RunStatus>(row.integer(1));
    if (run_status_name(status) == "unknown") {
      return Error{Code::kDataLoss, "the journal holds an unknown status"};
    }
    FLUVIAL_ASSIGN(const Digest model, row.digest(2));
    const round::ModelKey initial{run, ModelVersion(0)};
    content.models.emplace(initial, model);
    const bool has_state = row.integer(3) != 0;
    content.runs.push_back(
        {run, status, RoundId(0), has_state ? ModelStore::name_of(initial, ModelFile::kOptimizer) : ""});
    const Result<round::Plan> plan = plan_from_json(row.text(4));  // a run with another one cannot go on
    if (plan.ok() && plan->down.starts_with("delta:")) by_difference.insert(run);
    return {};
  }));
  auto at = content.runs.begin();
  return database.query("SELECT run, round, master, optimizer, model FROM commits ORDER BY run, round", {},
                        [&](const SqlRow& row) -> Status {
                          const RunId run = row.id<RunId>(0);
                          while (at != content.runs.end() && at->run != run) ++at;
                          if (at == content.runs.end())
                            return Error{Code::kDataLoss, "the journal holds a commit of an unknown run"};
                          at->round = row.id<RoundId>(1);
                          at->optimizer = row.text(3);
                          FLUVIAL_ASSIGN(const Digest model, row.digest(2));
                          content.models.emplace(round::ModelKey{run, ModelVersion(at->round.value())}, model);
                          FLUVIAL_ASSIGN(const Digest trained, row.digest(4));
                          at->trained.reset();
                          if (by_difference.contains(run) && trained != model) at->trained = trained;
                          return {};
                        });
}

}  // namespace

std::uint64_t journal_format() { return std::size(kJournalSteps); }

Status copy_journal(FileSystem& files, const std::string& path, const std::string& to) {
  FLUVIAL_ASSIGN(const std::unique_ptr<Database> database, Database::open_as_it_is(files, path, "a coordinator"));
  return database->copy_to(to, [] {});
}

Result<JournalContent> read_journal_copy(FileSystem& files, const std::string& path) {
  FLUVIAL_ASSIGN(const std::unique_ptr<Database> database, Database::open_as_it_is(files, path, "another backup"));
  FLUVIAL_TRY(check_whole(*database, path));
  JournalContent content;
  FLUVIAL_ASSIGN(const auto version, database->scalar("PRAGMA user_version"));
  content.format = static_cast<std::uint64_t>(version.value_or(0));
  if (content.format == 0 || content.format > journal_format()) {
    return Error{Code::kFailedPrecondition, path + " has format " + std::to_string(content.format) +
                                                ", expected 1 to " + std::to_string(journal_format()) +
                                                ": use the version of Fluvial that wrote it"};
  }
  FLUVIAL_TRY(database->query("SELECT name FROM federation", {}, [&](const SqlRow& row) -> Status {
    content.federation = row.text(0);
    return {};
  }));
  FLUVIAL_ASSIGN(content.restores, count_restores(*database));
  FLUVIAL_TRY(read_runs(*database, content));
  if (content.format >= 8) {
    FLUVIAL_TRY(database->query("SELECT run, round, model FROM labels UNION SELECT run, round, model FROM best", {},
                                [&](const SqlRow& row) -> Status {
                                  FLUVIAL_ASSIGN(const Digest model, row.digest(2));
                                  content.models.emplace(round::ModelKey{row.id<RunId>(0), ModelVersion(row.number(1))},
                                                         model);
                                  return {};
                                }));
  }
  if (content.format < 7) return content;
  FLUVIAL_TRY(database->query("SELECT chain FROM authorities ORDER BY number", {}, [&](const SqlRow& row) -> Status {
    content.authorities.push_back(row.text(0));
    return {};
  }));
  return content;
}

}  // namespace fluvial::store
