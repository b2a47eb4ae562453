// What a site counts.
#include "core/telemetry/subjects.h"

namespace fluvial::telemetry {

Subject site_subject() {
  using enum Kind;
  Label step{"step", {"sum", "encode"}};
  return {
      "Sites",
      "",
      true,
      {
          {"updates_submitted_total", kCounter, kSites, "Updates sent for the first time"},
          {"updates_resent_total", kCounter, kSites, "Updates sent again"},
          {"outcomes_total", kCounter, kSites, "Outcomes of updates", {{"outcome", {"counted", "late", "refused"}}}},
          {"update_norm", kGauge, kSites, "2-norm of the last update, with the residual in it"},
          {"update_weight", kGauge, kSites, "Weight of the last update"},
          {"residual_norm", kGauge, kSites, "2-norm of the residual"},
          {"residual_age_rounds", kGauge, kSites, "Submissions since one was counted"},
          {"residual_unspent_norm", kGauge, kSites, "2-norm of what the last run left, until another begins"},
          {"residuals_dropped_total", kCounter, kSites,
           "Residuals that were dropped: beyond the plan's bounds, of a run that the next one does not continue, "
           "or damaged on the disk"},
          {"workers", kGauge, kSites, "Training workers attached"},
          {"workers_expected", kGauge, kSites, "Workers that a round waits for: the setting `workers`"},
          {"training_seconds_total", kCounter, kSites, "Seconds in which at least one worker had a task"},
          {"training_share_ratio", kGauge, kSites, "The training share of the last round (above)"},
          {"train_failures_total", kCounter, kSites, "Rounds whose training failed, or had too few workers"},
          {"rounds_forbidden_total",
           kCounter,
           kSites,
           "Rounds declined by the rules of the site's owner (the settings `policy.*`)",
           {{"rule", {"runs", "cohort", "hours"}}}},
          {"fetch_seconds", kHistogram, kSites, "From a model's being named to its being here"},
          {"train_seconds", kHistogram, kSites, "Local steps of one round, with the wait for workers"},
          {"encode_seconds", kHistogram, kSites, "Encoding of one update, or of a pass of it, until it is on disk"},
          {"upload_seconds", kHistogram, kSites,
           "Sending of one update, from its first frame: much of its encoding can be in it"},
          {"gpus", kGauge, kSites, "GPUs that the agent may use"},
          {"gpu_updates_total",
           kCounter,
           kSites,
           "Updates of which a step was done on GPUs, where the workers' results lay",
           {step}},
          {"gpu_seconds_total", kCounter, kSites, "Seconds that updates spent in steps done on GPUs", {step}},
          {"gpu_memory_bytes", kGauge, kSites,
           "Memory on GPUs that updates take, or that is kept for the next one; workers have theirs beside it"},
      }};
}

}  // namespace fluvial::telemetry
