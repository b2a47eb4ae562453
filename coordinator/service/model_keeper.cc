#include "coordinator/service/model_keeper.h"

#include <algorithm>
#include <charconv>
#include <utility>

#include "core/base/printable.h"
#include "core/round/best_by.h"

namespace fluvial::coordinator {
namespace {

std::optional<RoundId> number_of(const std::string& text) {
  std::uint64_t number = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), number);
  if (error != std::errc{} || end != text.data() + text.size() || text.empty()) return std::nullopt;
  return RoundId(number);
}

round::ModelKey key_of(RunId run, RoundId round) { return {run, ModelVersion(round.value())}; }

}  // namespace

Result<std::set<ModelVersion>> ModelKeeper::stay(RunId run) {
  store::ModelBook book(journal_);
  std::set<ModelVersion> versions;
  FLUVIAL_ASSIGN(const std::vector<store::LabelRow> labels, book.labels(run));
  for (const store::LabelRow& label : labels) versions.insert(ModelVersion(label.round.value()));
  FLUVIAL_ASSIGN(const std::optional<store::BestRow> best, book.best(run));
  if (best) versions.insert(ModelVersion(best->round.value()));
  return versions;
}

Status ModelKeeper::consider(const round::Plan& plan, const round::ModelKey& model, const round::Metrics& metrics,
                             const Digest& digest, By by) {
  FLUVIAL_ASSIGN(const std::optional<round::BestBy> measure, round::parse_best_by(plan.models_kept_best));
  const std::optional<double> value = measure ? measure->of(metrics) : std::nullopt;
  if (!value) return {};
  store::ModelBook book(journal_);
  FLUVIAL_ASSIGN(const std::optional<store::BestRow> best, book.best(model.run));
  const bool evaluated = by == By::kEvaluator;
  if (best && best->evaluated && !evaluated) return {};
  const bool comparable = best && best->evaluated == evaluated;
  if (!measure->is_better(*value, comparable ? std::optional(best->value) : std::nullopt)) return {};
  FLUVIAL_ASSIGN(const bool there, models_.has(model));
  if (!there) return {};
  return book.set_best(model.run, {RoundId(model.version.value()), digest, *value, evaluated});
}

Status ModelKeeper::committed(const round::Plan& plan, const round::ModelRef& model, const round::Metrics& metrics) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(consider(plan, {model.run, model.version}, metrics, model.digest, By::kSites));
  FLUVIAL_ASSIGN(const std::set<ModelVersion> others, stay(model.run));
  return models_.prune(model.run, model.version, plan.models_kept, others);
}

Status ModelKeeper::evaluated(RunId run, RoundId round, const round::Metrics& metrics) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const store::RunRow row, journal_.run(run));
  FLUVIAL_ASSIGN(const Digest digest, digest_of(run, round));
  return consider(row.plan, key_of(run, round), metrics, digest, By::kEvaluator);
}

// A label outlives the journal's row of its round.
Result<Digest> ModelKeeper::digest_of(RunId run, RoundId round) {
  store::ModelBook book(journal_);
  FLUVIAL_ASSIGN(const std::vector<store::LabelRow> labels, book.labels(run));
  const auto label = std::ranges::find(labels, round, &store::LabelRow::round);
  if (label != labels.end()) return label->model;
  FLUVIAL_ASSIGN(const std::optional<store::BestRow> best, book.best(run));
  if (best && best->round == round) return best->model;
  if (round == RoundId(0)) {
    FLUVIAL_ASSIGN(const store::RunRow row, journal_.run(run));
    return row.initial_model;
  }
  FLUVIAL_ASSIGN(const store::CommitRow commit, journal_.commit_of(run, round));
  return commit.master;
}

// Of many the newest.
Result<std::string> ModelKeeper::rounds_kept(RunId run) const {
  constexpr std::size_t kNamed = 16;
  FLUVIAL_ASSIGN(std::vector<round::ModelKey> models, models_.list());
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(run));
  const round::ModelKey newest{run, ModelVersion(last ? last->record.round.value() : 0)};
  std::erase_if(models, [&](const round::ModelKey& model) { return model.run != run || newest < model; });
  if (models.empty()) return std::string("no model of the run is");
  std::string text = "the kept rounds are ";
  if (models.size() > kNamed) text += std::to_string(models.size()) + ", the newest ";
  const std::size_t first = models.size() - std::min(models.size(), kNamed);
  for (std::size_t i = first; i < models.size(); ++i) {
    text += (i == first ? "" : ", ") + std::to_string(models[i].version.value());
  }
  return text;
}

Result<ModelKeeper::Kept> ModelKeeper::find(RunId run, const std::string& which) {
  store::ModelBook book(journal_);
  std::optional<RoundId> round = number_of(which);
  if (which == "latest") {
    FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(run));
    round = last ? last->record.round : RoundId(0);
  } else if (which == "best") {
    FLUVIAL_ASSIGN(const std::optional<store::BestRow> best, book.best(run));
    if (!best) {
      return Error{Code::kNotFound, "run " + std::to_string(run.value()) +
                                        " has no best model: its plan's models_kept_best names a metric, and a round "
                                        "must have it"};
    }
    round = best->round;
  } else if (!round) {
    FLUVIAL_ASSIGN(const std::vector<store::LabelRow> labels, book.labels(run));
    const auto label = std::ranges::find(labels, which, &store::LabelRow::name);
    if (label == labels.end()) {
      return Error{Code::kNotFound, "run " + std::to_string(run.value()) + " has no model '" + printable(which, 64) +
                                        "': expected a round's number, latest, best or a label"};
    }
    round = label->round;
  }
  FLUVIAL_ASSIGN(const Digest digest, digest_of(run, *round));
  FLUVIAL_ASSIGN(const bool there, models_.has(key_of(run, *round)));
  if (!there) {
    FLUVIAL_ASSIGN(const std::string others, rounds_kept(run));
    return Error{Code::kNotFound, "the model of round " + std::to_string(round->value()) + " of run " +
                                      std::to_string(run.value()) + " is no longer kept (its plan's models_kept); " +
                                      others};
  }
  return Kept{*round, digest, models_.path_of(key_of(run, *round))};
}

Status ModelKeeper::label(RunId run, RoundId round, const std::string& name, WallTime now) {
  FLUVIAL_TRY(store::check_label(name));
  const std::lock_guard lock(mutex_);
  FLUVIAL_ASSIGN(const Kept kept, find(run, std::to_string(round.value())));
  return store::ModelBook(journal_).add_label(run, {name, round, kept.digest, now});
}

Status ModelKeeper::remove_label(RunId run, const std::string& name) {
  const std::lock_guard lock(mutex_);
  FLUVIAL_TRY(store::ModelBook(journal_).remove_label(run, name));
  FLUVIAL_ASSIGN(const store::RunRow row, journal_.run(run));
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(run));
  if (!last) return {};
  FLUVIAL_ASSIGN(const std::set<ModelVersion> others, stay(run));
  return models_.prune(run, ModelVersion(last->record.round.value()), row.plan.models_kept, others);
}

Result<std::vector<ModelKeeper::Listed>> ModelKeeper::list(RunId run) {
  const std::lock_guard lock(mutex_);
  store::ModelBook book(journal_);
  FLUVIAL_ASSIGN(const std::vector<store::LabelRow> labels, book.labels(run));
  FLUVIAL_ASSIGN(const std::optional<store::BestRow> best, book.best(run));
  FLUVIAL_ASSIGN(const std::optional<store::CommitRow> last, journal_.last_commit(run));
  FLUVIAL_ASSIGN(const std::vector<round::ModelKey> models, models_.list());
  std::vector<Listed> listed;
  for (const round::ModelKey& model : models) {
    Listed one{.round = RoundId(model.version.value())};
    // One that is written and not committed is nobody's yet.
    if (model.run != run || one.round > (last ? last->record.round : RoundId(0))) continue;
    for (const store::LabelRow& label : labels) {
      if (label.round == one.round) one.labels.push_back(label.name);
    }
    if (best && best->round == one.round) one.best = best->value;
    listed.push_back(std::move(one));
  }
  return listed;
}

}  // namespace fluvial::coordinator
