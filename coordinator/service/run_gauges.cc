#include "coordinator/service/run_gauges.h"

#include <algorithm>

namespace fluvial::coordinator {

RunGauges::RunGauges(telemetry::Metrics& metrics, const RunService& runs)
    : runs_(runs),
      run_(metrics.gauge("run")),
      waits_for_sites_(metrics.gauge("run_waits_for_sites")),
      rounds_planned_(metrics.gauge("run_rounds_planned")),
      model_version_(metrics.gauge("model_version")),
      quorum_(metrics.gauge("quorum")),
      participants_needed_(metrics.gauge("participants_needed")),
      hard_deadline_seconds_(metrics.gauge("hard_deadline_seconds")) {
  for (const auto status : {RunStatus::kRunning, RunStatus::kPaused, RunStatus::kStopped, RunStatus::kDone}) {
    states_.emplace(status, metrics.gauge("run_state", {{"state", std::string(round::run_status_name(status))}}));
  }
  for (const auto cause :
       {PauseCause::kPerson, PauseCause::kNoQuorum, PauseCause::kDisk, PauseCause::kSum, PauseCause::kPlan}) {
    causes_.emplace(cause, metrics.gauge("run_pause_reason", {{"reason", std::string(pause_cause_name(cause))}}));
  }
  measuring_ = metrics.before_render([this] { measure(); });
}

void RunGauges::measure() const {
  const RunMachine* const machine = runs_.active() != nullptr ? &runs_.active()->machine : nullptr;
  for (const auto& [status, gauge] : states_) gauge.set(machine != nullptr && machine->status() == status ? 1 : 0);
  const bool is_paused = machine != nullptr && machine->status() == RunStatus::kPaused;
  for (const auto& [cause, gauge] : causes_) {
    gauge.set(is_paused && pause_cause(machine->reason()) == cause ? 1 : 0);
  }
  run_.set(machine != nullptr ? static_cast<double>(machine->run().value()) : 0);
  model_version_.set(machine != nullptr ? static_cast<double>(machine->model().version.value()) : 0);
  measure_plan(machine != nullptr && !is_over(machine->status()) ? machine : nullptr);
}

// Of a run that goes on, or may.
void RunGauges::measure_plan(const RunMachine* machine) const {
  if (machine == nullptr) {
    for (const telemetry::Gauge& gauge :
         {waits_for_sites_, rounds_planned_, quorum_, participants_needed_, hard_deadline_seconds_}) {
      gauge.set(0);
    }
    return;
  }
  const round::Plan& plan = machine->plan();
  waits_for_sites_.set(machine->waits_for_sites() ? 1 : 0);
  rounds_planned_.set(static_cast<double>(plan.rounds));
  quorum_.set(static_cast<double>(plan.quorum));
  participants_needed_.set(static_cast<double>(std::max<std::uint64_t>(plan.participants_min, plan.quorum)));
  hard_deadline_seconds_.set(std::chrono::duration<double>(plan.hard_deadline).count());
}

}  // namespace fluvial::coordinator
