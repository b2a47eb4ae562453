#include "core/tree/round_gauges.h"

#include <algorithm>

namespace fluvial::tree {
namespace {

telemetry::Gauge sites(telemetry::Metrics& metrics, const char* state) {
  return metrics.gauge("round_sites", {{"state", state}});
}

void set(const telemetry::Gauge& gauge, std::size_t count) { gauge.set(static_cast<double>(count)); }

}  // namespace

RoundGauges::RoundGauges(telemetry::Metrics& metrics)
    : attempt_(metrics.gauge("attempt")),
      pass_(metrics.gauge("pass")),
      age_seconds_(metrics.gauge("round_age_seconds")),
      in_(sites(metrics, "in")),
      awaited_(sites(metrics, "awaited")),
      away_(sites(metrics, "away")),
      refused_(sites(metrics, "refused")),
      missing_(sites(metrics, "missing")),
      staging_bytes_(metrics.gauge("staging_bytes")),
      staging_limit_bytes_(metrics.gauge("staging_limit_bytes")),
      staging_spilled_bytes_(metrics.gauge("staging_spilled_bytes")),
      lane_tasks_(metrics.gauge("lane_tasks")) {}

void RoundGauges::measure(const Round& open, const round::Gather& gather,
                          const std::function<bool(SiteId)>& is_here) const {
  set(attempt_, open.attempt.value());
  if (open.attempt == AttemptId(0)) {
    for (const telemetry::Gauge& gauge : {pass_, age_seconds_, in_, awaited_, away_, refused_, missing_}) gauge.set(0);
    return;
  }
  const std::vector<SiteId> awaited = gather.awaited();
  const auto away = static_cast<std::size_t>(std::ranges::count_if(awaited, [&](SiteId s) { return !is_here(s); }));
  set(pass_, open.pass + 1);
  age_seconds_.set(std::chrono::duration<double>(open.age).count());
  set(in_, gather.counted().size());
  set(awaited_, awaited.size() - away);
  set(away_, away);
  set(refused_, gather.refusals().size());
  set(missing_, gather.late().size() - awaited.size());
}

void RoundGauges::measure(const store::StagingBudget& budget, std::size_t lane_tasks) const {
  set(staging_bytes_, budget.bytes_used());
  set(staging_limit_bytes_, budget.bytes_max());
  set(staging_spilled_bytes_, budget.bytes_spilled());
  set(lane_tasks_, lane_tasks);
}

}  // namespace fluvial::tree
