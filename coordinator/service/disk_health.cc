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
  models_fault_.set(1);
}

void DiskHealth::models_work() {
  models_failure_.clear();
  models_fault_.set(0);
}

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
  // Set by the start of a process that could not take up its run (run_starter.cc).
  return models_fault_.value() == 0 ? "" : "the model files: a run could not be taken up; the log says why";
}

}  // namespace fluvial::coordinator
