// Which part of the coordinator's disk fails, as people, /readyz and the metrics are told, and what to do about it. On
// the node's strand.
#pragma once

#include <string>

#include "core/store/journal.h"
#include "core/telemetry/metrics.h"

namespace fluvial::coordinator {

class DiskHealth {
 public:
  DiskHealth(telemetry::Metrics& metrics, store::CoordinatorJournal& journal);

  void models_failed(const std::string& why);
  void models_work();
  void run_rests(const std::string& why);  // its files do not let it be taken up; till another one begins
  void run_begins();
  Error with_advice(Error error) const;  // of the journal's
  std::string fault() const;             // why nothing is promised at present; empty: all is well

 private:
  void show_models();

  store::CoordinatorJournal& journal_;
  telemetry::Gauge models_fault_;
  std::string models_failure_;
  std::string resting_;
  telemetry::Measuring measuring_;
};

}  // namespace fluvial::coordinator
