#include "coordinator/service/run_report.h"

#include <map>
#include <utility>

#include "coordinator/logic/problems.h"
#include "coordinator/service/commands.h"

namespace fluvial::coordinator {
namespace {

constexpr std::size_t kLateLinesMax = 100;  // a round; `fluvial rounds show` names all

}  // namespace

RunReport::RunReport(telemetry::Metrics& metrics, telemetry::Logger log, Feed& feed, NameOf name_of)
    : log_(std::move(log)),
      feed_(feed),
      name_of_(std::move(name_of)),
      counts_(metrics),
      root_counts_(metrics),
      members_sites_(metrics.gauge("members", {{"role", "site"}})),
      members_aggregators_(metrics.gauge("members", {{"role", "aggregator"}})),
      quarantined_(metrics.gauge("sites_quarantined")),
      not_shown_(metrics.counter("contradictions_not_shown_total")),
      training_metrics_(metrics, "training_metric"),
      evaluation_metrics_(metrics, "evaluation_metric"),
      pace_report_(metrics, log_, name_of_) {}

telemetry::Logger RunReport::round_log(const round::AttemptRecord& attempt) const {
  return log_.with({{"run", attempt.run}, {"round", attempt.round}, {"attempt", attempt.attempt}});
}

// ---- runs ---------------------------------------------------------------------------------------------------------

void RunReport::run_taken_up(const RunMachine& machine) {
  training_metrics_.forget();
  evaluation_metrics_.forget();
  log_.info("run taken up", {{"run", machine.run()},
                             {"run_name", machine.plan().name},
                             {"model_version", machine.model().version},
                             {"codec", machine.plan().codec},
                             {"down", machine.plan().down}});
  if (taken_up_) taken_up_(machine);
}

void RunReport::status_told(RunId run, RunStatus status, const std::string& reason) {
  const telemetry::Logger log = log_.with({{"run", run}, {"status", run_status_name(status)}, {"reason", reason}});
  if (status == RunStatus::kPaused && !is_by_person(reason)) {
    log.warn("run paused; no round opens until it is resumed");
  } else {
    log.info("run status");
  }
  const bool ends = is_over(status);
  const FeedLine line{run, RoundId(0), ends, state_line(run, status, reason)};
  if (!ends) return feed_.publish(line);
  feed_.hold(line);
  feed_.release_unless(evaluating_);
  if (over_) over_(run, status);
}

void RunReport::status_not_recorded(RunId run, RunStatus status, const Error& error) {
  log_.error("the run's status could not be recorded; it stays as it was",
             {{"run", run}, {"status", run_status_name(status)}, {"reason", error.to_string()}});
}

// ---- rounds -------------------------------------------------------------------------------------------------------

void RunReport::attempt_opened(const round::AttemptRecord& attempt, Duration soft_deadline) {
  if (attempt.attempt == AttemptId(1)) root_counts_.rounds_opened.add();
  counts_.attempts.add();
  counts_.round.set(static_cast<double>(attempt.round.value()));
  counts_.participants.set(static_cast<double>(attempt.participants.size()));
  pace_report_.round_opened(soft_deadline);
  round_log(attempt).info("round open",
                          {{"participants", attempt.participants.size()}, {"scale_bits", attempt.scale_bits}});
  feed_.publish({attempt.run, attempt.round, false, opened_line(attempt)});
}

// Each once, when it begins and when it is over.
void RunReport::expects(const RunMachine& machine) {
  const round::Attendance& attendance = machine.attendance();
  const telemetry::Logger log = round_log(machine.attempt());
  for (const round::Participant& one : machine.attempt().participants) {
    const round::Expected now = attendance.of(one.site);
    if (std::exchange(expected_[one.site], now) != now) {
      if (now == round::Expected::kYes) {
        log.info("a site is waited for again", {{"site", name_of_(one.site)}});
      } else {
        log.warn("a site is asked and not waited for; rounds go on without it until it is heard of",
                 {{"site", name_of_(one.site)}, {"reason", round::expected_name(now)}});
      }
    }
    const std::optional<Uncounted> never = uncounted(machine.plan(), attendance.missed(one.site));
    if (!never || now != round::Expected::kYes) {
      uncounted_.erase(one.site);
    } else if (uncounted_.insert(one.site).second) {
      log.warn(
          "a site works, and its updates are in no round; what they hold waits at the site until plan or site are "
          "changed",
          {{"site", name_of_(one.site)}, {"rounds", attendance.missed(one.site)}, {"reason", never->advice}});
    }
  }
}

void RunReport::pass_over(const Reduce& effect, const round::AttemptRecord& attempt, const NamedVector& mean,
                          Duration took) {
  round_log(attempt).info("pass over; its mean goes down", {{"pass", effect.pass + 1},
                                                            {"contributors", effect.contributors.size()},
                                                            {"mean_sha256", to_hex(mean.ref.digest)},
                                                            {"bytes", mean.ref.bytes},
                                                            {"seconds", std::chrono::duration<double>(took).count()}});
}

void RunReport::site_refused(const round::AttemptRecord& attempt, const round::Refusal& refusal) {
  round_log(attempt).warn("site refused; the round goes on without it",
                          {{"site", name_of_(refusal.site)}, {"reason", refusal.error.to_string()}});
}

void RunReport::travels_whole(const round::ModelRef& model, const std::string& why) {
  log_.warn("the plan's `down` cannot hold this model; it travels whole",
            {{"run", model.run}, {"model_version", model.version}, {"reason", why}});
}

void RunReport::sum_given_up(const round::AttemptRecord& attempt, NodeId child, const Error& error) {
  round_log(attempt).error("the sum is given up; everybody is asked again",
                           {{"member", name_of_(child)}, {"reason", error.to_string()}});
}

void RunReport::step_failed(const round::AttemptRecord& attempt, DiskPart part, const Error& error) {
  round_log(attempt).error(
      "a step of the round failed; the run pauses, and nothing is promised until the disk is mended",
      {{"part", part == DiskPart::kModels ? "models" : "journal"}, {"reason", error.to_string()}});
}

void RunReport::committing(const store::CommitRow&, const NextModel& next) {
  step_norm_ = next.step_norm;
  model_down_bytes_ = next.trained.form ? next.trained.form->form.bytes : next.trained.ref.bytes;
  model_left_out_norm_ = next.trained.left_out_norm;
}

void RunReport::took(Work work, Duration time) {
  const double seconds = std::chrono::duration<double>(time).count();
  switch (work) {
    case Work::kAttemptRecord: return root_counts_.attempt_record_seconds.observe(seconds);
    case Work::kFinalise: return root_counts_.finalise_seconds.observe(seconds);
    case Work::kCommitRecord: return root_counts_.commit_record_seconds.observe(seconds);
    case Work::kStatusRecord: return root_counts_.status_record_seconds.observe(seconds);
    case Work::kCommit: return root_counts_.commit_seconds.observe(seconds);
  }
}

void RunReport::committed(const store::CommitRow& row, const round::Pace& pace) {
  const round::CommitRecord& record = row.record;
  counts_.rounds_committed.add();
  // From the round's opening to the sum sites take in the first pass; nobody trains in a later one.
  pace_report_.round_closed(pace, record.passes.empty() ? record.contributors : record.passes.front().contributors);
  counts_.contributions_counted.add(static_cast<double>(record.contributors.size()));
  for (const SiteId site : record.late) root_counts_.late(where_ ? where_(site) : "unknown");
  std::uint64_t stale = 0;
  std::uint64_t staleness = 0;
  std::map<std::string, std::size_t> reporters;
  for (const auto& [site, entry] : record.contributors.entries()) {
    for (const auto& [name, value] : entry.metrics) ++reporters[name];
    stale += entry.staleness() > 0 ? 1 : 0;
    staleness += entry.staleness();
    if (record.late_is_next) root_counts_.counted(name_of_(site));
  }
  root_counts_.contributions_stale.add(static_cast<double>(stale));
  root_counts_.staleness.add(static_cast<double>(staleness));
  root_counts_.step_norm.set(step_norm_);
  root_counts_.model_whole_bytes.set(static_cast<double>(record.model.bytes));
  root_counts_.model_down_bytes.set(static_cast<double>(model_down_bytes_));
  root_counts_.model_left_out_norm.set(model_left_out_norm_);
  training_metrics_.set(row.metrics, reporters);
  root_counts_.round_seconds.observe(static_cast<double>(row.duration_ms) / 1000.0);
  const telemetry::Logger log = log_.with({{"run", record.run}, {"round", record.round}, {"attempt", record.attempt}});
  log.info("round committed", {{"contributors", record.contributors.size()},
                               {"late", record.late.size()},
                               {"refused", record.refusals.size()},
                               {"of_earlier_rounds", stale},
                               {"weight", record.contributors.total_weight()},
                               {"seconds", static_cast<double>(row.duration_ms) / 1000.0},
                               {"bytes_up", row.bytes_up},
                               {"bytes_down", row.bytes_down},
                               {"model_version", record.model.version},
                               {"model_sha256", to_hex(record.model.digest)}});
  if (log.accepts(telemetry::Level::kDebug)) {
    for (const auto& [site, entry] : record.contributors.entries()) {
      log.debug("update counted", {{"site", name_of_(site)}, {"weight", entry.weight}});
    }
  }
  for (std::size_t i = 0; i < record.late.size() && i < kLateLinesMax; ++i) {
    log.info("site late", {{"site", name_of_(record.late[i])}});
  }
  feed_.publish({record.run, record.round, false, committed_line(row, name_of_)});
}

// ---- members ------------------------------------------------------------------------------------------------------

void RunReport::members_changed(std::size_t sites, std::size_t aggregators) {
  members_sites_.set(static_cast<double>(sites));
  members_aggregators_.set(static_cast<double>(aggregators));
}

void RunReport::sent_away(NodeId node, const Error& reason) {
  log_.info("sent away", {{"member", name_of_(node)}, {"reason", reason.message}});
}

void RunReport::contradictions_not_shown(NodeId by, const round::Refusal& first, const Error& why, std::size_t count) {
  not_shown_.add(static_cast<double>(count));
  log_.warn("sites are said to contradict themselves, and it is not shown; they go on taking part",
            {{"member", name_of_(by)},
             {"count", count},
             {"site", name_of_(first.site)},
             {"reason", why.message + " (" + first.error.message + ")"}});
}

void RunReport::quarantined(SiteId site, const std::string& reason) {
  log_.error("site in quarantine; it takes part in no round until it is cleared",
             {{"site", name_of_(site)}, {"reason", reason}});
}

void RunReport::quarantine_not_recorded(SiteId site, const Error& error) {
  log_.error("the quarantine could not be recorded; it ends with this process",
             {{"site", name_of_(site)}, {"reason", error.to_string()}});
}

void RunReport::quarantine_counted(std::size_t sites) { quarantined_.set(static_cast<double>(sites)); }

}  // namespace fluvial::coordinator
