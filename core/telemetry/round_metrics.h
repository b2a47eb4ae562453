// What those who hold rounds count.
#pragma once

#include "core/telemetry/metrics.h"

namespace fluvial::telemetry {

// At the root and at inner nodes.
class RoundMetrics {
 public:
  explicit RoundMetrics(Metrics& metrics);

  Counter rounds_committed;
  Counter attempts;
  Counter contributions_counted;
  Counter updates_verified;
  Histogram merge_seconds;
  Gauge round;
  Gauge participants;
  void contribution_refused(std::string_view reason) const;  // a Code's name

 private:
  Metrics* metrics_;
};

// At the root alone.
class RootMetrics {
 public:
  explicit RootMetrics(Metrics& metrics);

  Counter rounds_opened;
  Counter contributions_late;
  Counter contributions_forged;
  Counter contributions_stale;
  Counter staleness;
  Gauge step_norm;
  Gauge model_whole_bytes;
  Gauge model_down_bytes;
  Gauge model_left_out_norm;
  Histogram round_seconds;
  Histogram finalise_seconds;
  Histogram commit_seconds;
  Histogram attempt_record_seconds;
  Histogram commit_record_seconds;
  Histogram status_record_seconds;
  void late(std::string_view phase) const;
  void counted(std::string_view site) const;  // of a run with `late = "next"`: the sites' shares

 private:
  Metrics* metrics_;
};

}  // namespace fluvial::telemetry
