// Runs: made, over, continued.
#include <utility>

#include "core/store/journal.h"
#include "core/store/journal_rounds.h"
#include "core/store/plan_json.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

Result<RunStatus> status_from(std::int64_t number) {
  const auto status = static_cast<RunStatus>(number);
  if (round::run_status_name(status) == "unknown") return Error{Code::kDataLoss, "the journal holds an unknown status"};
  return status;
}

Result<RunRow> run_from(const SqlRow& row) {
  RunRow run;
  run.id = row.id<RunId>(0);
  FLUVIAL_ASSIGN(run.plan, plan_from_json(row.text(1)));
  FLUVIAL_ASSIGN(run.schema, schema_from_json(row.text(2)));
  FLUVIAL_ASSIGN(run.initial_model, row.digest(3));
  FLUVIAL_ASSIGN(run.status, status_from(row.integer(4)));
  run.reason = row.text(5);
  run.created_at = row.time(6);
  run.continues = row.id<RunId>(7);
  run.keeps_optimizer = row.integer(8) != 0;
  if (row.is_null(9)) return run;
  run.codec_state.emplace().bytes = row.number(10);
  FLUVIAL_ASSIGN(run.codec_state->digest, row.digest(9));
  return run;
}

}  // namespace

Result<std::optional<RunStatus>> status_of(Database& database, RunId run) {
  FLUVIAL_ASSIGN(const auto status, database.scalar("SELECT status FROM runs WHERE id = ?", {run}));
  if (!status) return std::optional<RunStatus>();
  FLUVIAL_ASSIGN(const RunStatus known, status_from(*status));
  return std::optional(known);
}

Result<RunId> CoordinatorJournal::create_run(const RunRow& run) {
  const std::lock_guard lock(mutex_);
  RunId id;
  FLUVIAL_TRY(change([&]() -> Status {
    FLUVIAL_ASSIGN(const auto last, database_->scalar("SELECT max(id) FROM runs"));
    id = RunId(static_cast<std::uint64_t>(last.value_or(0)) + 1);
    if (run.id != RunId() && run.id != id) {
      return Error{Code::kFailedPrecondition, "the next run is " + std::to_string(id.value())};
    }
    const std::optional<round::VectorRef>& state = run.codec_state;
    return database_->run(
        "INSERT INTO runs VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
        {id, plan_to_json(run.plan), schema_to_json(run.schema), run.initial_model, static_cast<int>(run.status),
         run.reason, run.created_at, run.continues, run.keeps_optimizer ? 1 : 0,
         state ? std::optional(state->digest) : std::nullopt, state ? state->bytes : 0});
  }));
  return id;
}

Status CoordinatorJournal::set_run_status(RunId run, RunStatus status, const std::string& reason) {
  const std::lock_guard lock(mutex_);
  return change([&]() -> Status {
    FLUVIAL_ASSIGN(const std::optional<RunStatus> now, status_of(*database_, run));
    if (!now) return Error{Code::kNotFound, "there is no run " + std::to_string(run.value())};
    if (is_over(*now) && *now != status) {
      return Error{Code::kFailedPrecondition, "run " + std::to_string(run.value()) + " is " +
                                                  std::string(run_status_name(*now)) +
                                                  ": start a run that continues it"};
    }
    return database_->run("UPDATE runs SET status = ?, reason = ? WHERE id = ?",
                          {static_cast<int>(status), reason, run});
  });
}

Result<std::vector<RunRow>> CoordinatorJournal::runs() {
  const std::lock_guard lock(mutex_);
  if (const std::optional<Error>& fault = database_->fault()) return *fault;
  std::vector<RunRow> found;
  FLUVIAL_TRY(database_->query(
      "SELECT id, plan, schema, initial_model, status, reason, created_at, continues, keeps_optimizer, "
      "codec_state, codec_state_bytes FROM runs ORDER BY id",
      {}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(RunRow run, run_from(row));
        found.push_back(std::move(run));
        return {};
      }));
  return found;
}

Result<RunRow> CoordinatorJournal::run(RunId id) {
  const std::lock_guard lock(mutex_);
  if (const std::optional<Error>& fault = database_->fault()) return *fault;
  std::optional<RunRow> found;
  FLUVIAL_TRY(database_->query(
      "SELECT id, plan, schema, initial_model, status, reason, created_at, continues, keeps_optimizer, "
      "codec_state, codec_state_bytes FROM runs WHERE id = ?",
      {id}, [&](const SqlRow& row) -> Status {
        FLUVIAL_ASSIGN(found, run_from(row));
        return {};
      }));
  if (!found) return Error{Code::kNotFound, "there is no run " + std::to_string(id.value())};
  return std::move(*found);
}

Result<std::vector<RunId>> CoordinatorJournal::continued_by(RunId run, std::size_t most) {
  const std::lock_guard lock(mutex_);
  std::vector<RunId> chain;
  for (RunId at = run; chain.size() < most;) {
    RunId before;
    FLUVIAL_TRY(database_->query("SELECT continues FROM runs WHERE id = ?", {at}, [&](const SqlRow& row) -> Status {
      before = row.id<RunId>(0);
      return {};
    }));
    if (before == RunId() || before >= at) break;
    chain.push_back(before);
    at = before;
  }
  return chain;
}

}  // namespace fluvial::store
