#include "coordinator/service/disk_health.h"

#include <optional>

namespace fluvial::coordinator {
DiskHealth::DiskHealth(telemetry::Metrics& metrics, store::CoordinatorJournal& journal)
    : journal_(journal), models_fault_(metrics.gauge("storage_fault", {{"part", "models"}})) {
  telemetry::Gauge journal_fault = metrics.gauge("storage_fault", {{"part", "journal"}});
  measuring_ = metrics.before_render([&journal, journal_fault] { journal_fault.set(journal.fault() ? 1 : 0); });
}

void DiskHealth::models_failed(const std::string& why) {
  models_failure_ = why;
  show_models();
}

void DiskHealth::models_work() {
  models_failure_.clear();
  show_models();
}

void DiskHealth::run_rests(const std::string& why) {
  resting_ = why;
  show_models();
}

void DiskHealth::run_begins() {
  resting_.clear();
  show_models();
}

void DiskHealth::show_models() { models_fault_.set(models_failure_.empty() && resting_.empty() ? 0 : 1); }

Error DiskHealth::with_advice(Error error) const {
  const std::optional<Error> fault = journal_.fault();
  if (fault && fault->code == Code::kUnavailable) {
    error.message += "; restart the coordinator: only then is it known what is on the disk";
  }
  return error;
}

std::string DiskHealth::fault() const {
  if (const std::optional<Error> journal = journal_.fault()) return "the journal: " + journal->to_string();
  if (!models_failure_.empty()) return "the model files: " + models_failure_;
  return resting_.empty() ? "" : "the model files: " + resting_;
}

}  // namespace fluvial::coordinator
