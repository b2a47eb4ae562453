#include "core/store/model_book.h"

#include <mutex>
#include <utility>

#include "core/base/printable.h"
#include "core/store/journal.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr std::string_view kDigits = "0123456789";
constexpr std::string_view kLetters = "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ0123456789._-";

}  // namespace

Status check_label(std::string_view name) {
  const bool is_word =
      !name.empty() && name.size() <= kLabelBytesMax && name.find_first_not_of(kLetters) == std::string_view::npos;
  const bool is_taken = name == "latest" || name == "best" || name.find_first_not_of(kDigits) == std::string_view::npos;
  if (is_word && !is_taken) return {};
  return Error{Code::kInvalidArgument,
               "label '" + printable(name, kLabelBytesMax) +
                   "': expected 1 to 64 letters, digits, dots, dashes or underlines, not a number, latest or best"};
}

Status ModelBook::add_label(RunId run, const LabelRow& label) {
  FLUVIAL_TRY(check_label(label.name));
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  return journal_.change([&]() -> Status {
    FLUVIAL_ASSIGN(const auto there,
                   database.scalar("SELECT round FROM labels WHERE run = ? AND name = ?", {run, label.name}));
    if (there && static_cast<std::uint64_t>(*there) == label.round.value()) return {};
    if (there) {
      return Error{Code::kAlreadyExists, "'" + label.name + "' is the model of round " + std::to_string(*there) +
                                             " already: take that label away, or choose another name"};
    }
    FLUVIAL_ASSIGN(const auto count, database.scalar("SELECT count(*) FROM labels WHERE run = ?", {run}));
    if (static_cast<std::size_t>(count.value_or(0)) >= kLabelsMax) {
      return Error{Code::kResourceExhausted,
                   "the run has " + std::to_string(kLabelsMax) + " labels, the most there can be"};
    }
    return database.run("INSERT INTO labels (run, name, round, model, labelled_at) VALUES (?, ?, ?, ?, ?)",
                        {run, label.name, label.round, label.model, label.labelled_at});
  });
}

Status ModelBook::remove_label(RunId run, const std::string& name) {
  const std::lock_guard lock(journal_.mutex_);
  Database& database = *journal_.database_;
  return journal_.change([&]() -> Status {
    FLUVIAL_ASSIGN(const auto there, database.scalar("SELECT 1 FROM labels WHERE run = ? AND name = ?", {run, name}));
    if (!there) {
      return Error{Code::kNotFound,
                   "run " + std::to_string(run.value()) + " has no label '" + printable(name, kLabelBytesMax) + "'"};
    }
    return database.run("DELETE FROM labels WHERE run = ? AND name = ?", {run, name});
  });
}

Result<std::vector<LabelRow>> ModelBook::labels(RunId run) {
  const std::lock_guard lock(journal_.mutex_);
  std::vector<LabelRow> found;
  FLUVIAL_TRY(journal_.database_->query(
      "SELECT name, round, model, labelled_at FROM labels WHERE run = ? ORDER BY round, name", {run},
      [&](const SqlRow& row) -> Status {
        LabelRow next{.name = row.text(0), .round = row.id<RoundId>(1), .labelled_at = row.time(3)};
        FLUVIAL_ASSIGN(next.model, row.digest(2));
        found.push_back(std::move(next));
        return {};
      }));
  return found;
}

Status ModelBook::set_best(RunId run, const BestRow& best) {
  const std::lock_guard lock(journal_.mutex_);
  return journal_.change([&]() -> Status {
    return journal_.database_->run(
        "INSERT INTO best (run, round, model, value, evaluated) VALUES (?, ?, ?, ?, ?) ON CONFLICT (run) DO UPDATE SET "
        "round = excluded.round, model = excluded.model, value = excluded.value, evaluated = excluded.evaluated",
        {run, best.round, best.model, best.value, best.evaluated ? 1 : 0});
  });
}

Result<std::optional<BestRow>> ModelBook::best(RunId run) {
  const std::lock_guard lock(journal_.mutex_);
  std::optional<BestRow> found;
  FLUVIAL_TRY(journal_.database_->query(
      "SELECT round, model, value, evaluated FROM best WHERE run = ?", {run}, [&](const SqlRow& row) -> Status {
        BestRow best{.round = row.id<RoundId>(0), .value = row.real(2), .evaluated = row.integer(3) != 0};
        FLUVIAL_ASSIGN(best.model, row.digest(1));
        found = best;
        return {};
      }));
  return found;
}

}  // namespace fluvial::store
