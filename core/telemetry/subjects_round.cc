// What those who hold rounds count: the coordinator and aggregators; and the coordinator's runs and members.
#include "core/telemetry/subjects.h"

namespace fluvial::telemetry {
namespace {

Label role_label() { return {"role", {"site", "aggregator"}}; }

Declaration site_shares() {
  return {"site_contributions_total",
          Kind::kCounter,
          kCoordinators,
          "Its contributions to the commits: the sites' shares",
          {{"site", {}}},
          "a run with `late = next` commits"};
}

}  // namespace

Label name_label() { return {"name", {}}; }

Subject rounds_subject() {
  using enum Kind;
  return {
      "Rounds: coordinator and aggregators",
      "",
      true,
      {
          {"rounds_opened_total", kCounter, kCoordinators, "Rounds opened"},
          {"rounds_committed_total", kCounter, kParents, "Rounds committed"},
          {"attempts_total", kCounter, kParents, "Attempts opened, first ones and repeated"},
          {"round", kGauge, kEveryRole, "The round that is open, or the last one heard of"},
          {"attempt", kGauge, kParents, "The open round's attempt; 0 while none is open"},
          {"pass", kGauge, kParents, "The open round's pass, from 1; 0 while none is open"},
          {"round_age_seconds", kGauge, kParents,
           "How long ago the open round was opened here, with all its attempts; 0 while none is open"},
          {"participants", kGauge, kParents, "Participants of the open round, or of the last one"},
          {"round_sites",
           kGauge,
           kParents,
           "Participants of the open round: in a sum; awaited; awaited and not connected (`away`); refused; or "
           "`missing`, without whom their aggregator closed",
           {{"state", {"in", "awaited", "away", "refused", "missing"}}}},
          {"soft_deadline_seconds", kGauge, kCoordinators,
           "The open attempt's soft deadline, from its opening ([plan](plan.md): `deadlines.adaptive`)"},
          {"hard_deadline_seconds", kGauge, kCoordinators,
           "An attempt's hard deadline, from its opening; 0 while no run is active"},
          {"members", kGauge, kParents, "Nodes connected below this one, however deep", {role_label()}},
          {"contributions_total",
           kCounter,
           kParents,
           "Contributions of committed rounds",
           {{"outcome", {"counted", {"late", kCoordinators}}}}},
          {"late_sites_total",
           kCounter,
           kCoordinators,
           "Where a late site was when its round was committed",
           {{"phase",
             {"away", "no_worker", "waiting", "fetching", "training", "encoding", "sending", "merging", "unknown"}}}},
          {"contributions_refused_total",
           kCounter,
           kParents,
           "Contributions refused or declined",
           {error_label("reason")}},
          {"contributions_forged_total", kCounter, kCoordinators,
           "Contributions in partials that were not as their sites had signed them"},
          {"contributions_stale_total", kCounter, kCoordinators,
           "Counted contributions of an earlier round than the one that counted them"},
          {"staleness_rounds_total", kCounter, kCoordinators, "How many rounds these were late, together"},
          site_shares(),
          {"updates_verified_total", kCounter, kParents, "Updates and partials that passed every check, in each pass"},
          {"staging_bytes", kGauge, kParents, "Memory that staged updates hold"},
          {"staging_limit_bytes", kGauge, kParents,
           "Memory that they may hold: `staging_bytes_max`; with `auto`, that of the last round's model"},
          {"staging_spilled_bytes", kGauge, kParents, "Bytes of staged updates on disk, beyond that memory"},
          {"lane_tasks", kGauge, kParents, "Operations on the sum, queued or running"},
          {"step_norm", kGauge, kCoordinators, "2-norm of the last committed step: the new model less its base"},
          {"model_whole_bytes", kGauge, kCoordinators, "Bytes of the last model that this process committed"},
          {"model_down_bytes", kGauge, kCoordinators,
           "Bytes in which it travels to a child that has the one before; model_whole_bytes: it travels whole"},
          {"model_left_out_norm", kGauge, kCoordinators,
           "2-norm of what its way down leaves out until the next one: the master less what sites train from"},
          {"stragglers", kGauge, kCoordinators, "Sites that are slow or late in most of their last rounds"},
          {"site_straggler_score",
           kGauge,
           kCoordinators,
           "How many times the median site's time; from 2 on a site is a straggler, below 1.5 no more",
           {{"site", {}}},
           "a site is a straggler"},
      }};
}

Subject times_subject() {
  using enum Kind;
  return {
      "How long a round takes: coordinator and aggregators",
      "In a round with several passes each is merged, and sent on, by itself; `site_round_seconds` is of the first, in "
      "which sites train.",
      true,
      {
          {"round_seconds", kHistogram, kCoordinators, "From a round's opening to its commit"},
          {"merge_seconds", kHistogram, kParents, "Adding one update or partial to the sum, with its wait"},
          {"finalise_seconds", kHistogram, kCoordinators, "Of one round: mean, server optimizer, digest, model files"},
          {"commit_seconds", kHistogram, kCoordinators,
           "Of one round: from the sealed sum to the commit in the journal"},
          {"journal_record_seconds",
           kHistogram,
           kCoordinators,
           "From asking the journal to its answer",
           {{"record", {"attempt", "commit", "status"}}}},
          {"partial_seconds", kHistogram, kAggregators,
           "From a partial's first frame to the parent's receipt; the tier's deadline leaves room for it"},
          {"partials_total",
           kCounter,
           kAggregators,
           "Partials by what became of them",
           {{"outcome", {"sent", "failed", "refused"}}}},
          {"site_round_seconds", kHistogram, kCoordinators,
           "From a round's opening to a site's update in the sum, over all tiers; one value a site and round"},
      }};
}

Subject runs_subject() {
  using enum Kind;
  return {
      "Runs: coordinator",
      "A run that paused itself, other than by a person's command: "
      "`sum(fluvial_coordinator_run_pause_reason{reason!=\"person\"}) > 0`.",
      true,
      {
          {"run", kGauge, kCoordinators, "The number of the active run, or of the last one; 0: there was none"},
          {"run_state",
           kGauge,
           kCoordinators,
           "1 for the state that this run is in",
           {{"state", {"running", "paused", "stopped", "done"}}}},
          {"run_pause_reason",
           kGauge,
           kCoordinators,
           "1 for why it is paused: by a person; without a quorum in the last attempt that it had; the journal or "
           "the model files failed; the sum could not be made; its plan leaves no room for its participants",
           {{"reason", {"person", "no_quorum", "disk", "sum", "plan"}}}},
          {"run_waits_for_sites", kGauge, kCoordinators,
           "1 while it goes on and no round opens, because too few sites are connected"},
          {"run_rounds_planned", kGauge, kCoordinators, "Rounds that its plan asks for"},
          {"model_version", kGauge, kEveryRole, "The version of the model held, which is the round that committed it"},
          {"quorum", kGauge, kCoordinators, "Contributions that a round of it needs; 0 while no run is active"},
          {"participants_needed", kGauge, kCoordinators,
           "Sites that must be connected before a round of it opens; 0 while no run is active"},
          {"contradictions_not_shown_total", kCounter, kCoordinators,
           "Sites accused of contradicting themselves, and it was not shown; they go on taking part"},
          {"training_metric",
           kGauge,
           kCoordinators | kSites,
           "What workers report: the weighted mean of the last committed round, or this site's last; the first 32 "
           "names of a run, of them 16 that one of several sites reports",
           {name_label()},
           "a worker has reported it"},
          {"evaluation_metric",
           kGauge,
           kCoordinators,
           "What evaluators report of the last model that they evaluated",
           {name_label()},
           "an evaluator has reported it"},
          {"reported_metrics_dropped_total", kCounter, kCoordinators | kSites,
           "Reported values beyond the first 32 names, or whose name looks like another's as a label"},
      }};
}

Subject members_subject() {
  using enum Kind;
  return {
      "The federation: coordinator",
      "",
      true,
      {
          {"members_enrolled", kGauge, kCoordinators, "Members enrolled and not revoked", {role_label()}},
          {"identities_held_twice", kGauge, kCoordinators,
           "Members whose identity two machines showed by turns within the last hour: a copied folder, or a stolen "
           "key"},
          {"sites_available", kGauge, kCoordinators, "Sites connected that may take part in a round"},
          {"member_connected",
           kGauge,
           kCoordinators,
           "1 while this member is connected, however deep, else 0; the first 256",
           {role_label(), {"member", {}}},
           "a member is enrolled"},
          {"member_certificate_expiry_timestamp_seconds",
           kGauge,
           kCoordinators,
           "End of a connected member's certificate, since 1970, as far as known; the first 256",
           {role_label(), {"member", {}}},
           "a member is connected"},
          {"members_past_aggregator", kGauge, kCoordinators,
           "Members connected past an aggregator of their region that is nearer than their parent"},
          {"member_past_aggregator",
           kGauge,
           kCoordinators,
           "1 for each of them; the first 256",
           {{"member", {}}, {"aggregator", {}}},
           "a member goes past its aggregator"},
          {"sites_without_workers", kGauge, kCoordinators, "Sites connected that report no worker"},
          {"clock_offset_seconds",
           kGauge,
           kCoordinators,
           "A connected child's wall clock less the coordinator's, by their session's round trips; the first 256",
           {{"member", {}}},
           "it was measured"},
          {"sites_quarantined", kGauge, kCoordinators, "Sites that take part in no round until `fluvial nodes clear`"},
          {"site_quarantined",
           kGauge,
           kCoordinators,
           "1 for each of them; the first 256",
           {{"site", {}}},
           "a site is quarantined"},
          {"certificate_validity_seconds", kGauge, kCoordinators, "For how long certificates are issued to members"},
          {"renewals_total",
           kCounter,
           kCoordinators,
           "Certificates asked to be renewed: granted, the same one again, refused, and beyond `enrol_per_minute_max`",
           {{"result", {"granted", "again", "refused", "too_many"}}}},
          {"enrolments_total",
           kCounter,
           kCoordinators,
           "Requests to enrol: granted, the same certificate again, refused, and wrong tokens beyond their address' "
           "bound",
           {{"result", {"granted", "again", "refused", "too_many_wrong"}}}},
          {"journal_bytes", kGauge, kCoordinators, "Size of the journal's database; every 64 commits and every hour"},
          {"journal_free_bytes", kGauge, kCoordinators, "Of these, what pruned rounds left, to be used again"},
          {"journal_rounds", kGauge, kCoordinators, "Committed rounds that the journal keeps (`keep_rounds`)"},
          {"storage_fault",
           kGauge,
           kCoordinators,
           "1 while this part of the disk fails and nothing is promised; `models`, also: a run could not be taken up",
           {{"part", {"journal", "models"}}}},
          {"last_backup_timestamp_seconds", kGauge, kCoordinators,
           "When the last [backup](backup.md) was made, since 1970; 0 where nobody knows of one"},
      }};
}

}  // namespace fluvial::telemetry
