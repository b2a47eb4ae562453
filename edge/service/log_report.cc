#include "edge/service/log_report.h"

#include <algorithm>
#include <boost/json.hpp>
#include <utility>

#include "core/round/reported.h"
#include "core/tree/limits.h"
#include "core/wire/mapping.h"

namespace fluvial::edge {
namespace {

// What becomes of an update that is late.
const char* late_text(bool run_over) {
  return run_over ? "update late, and its run is over; it goes into the run that continues it, if one does"
                  : "update late; it goes into the next one";
}

constexpr const char* kResidualDropped = "residual dropped; the next update goes without it";

}  // namespace

LogReport::LogReport(telemetry::Metrics& metrics, telemetry::Logger log, const Clock& clock, bool alone)
    : log_(std::move(log)),
      clock_(clock),
      alone_(alone),
      metrics_(metrics),
      bytes_(metrics, telemetry::Tier::kParent),
      training_metrics_(metrics, "training_metric"),
      measuring_(metrics.before_render([this] { count_training(); })) {}

void LogReport::show(telemetry::Gauge gauge, double value) const {
  if (alone_) gauge.set(value);
}

telemetry::Logger LogReport::log_of(RunId run, RoundId round) const {
  return log_.with({{"run", run}, {"round", round}});
}

std::string LogReport::status_json(const SiteStatus& now) const {
  boost::json::object status{{"role", "site"},
                             {"name", now.name},
                             {"node", now.node.value()},
                             {"connected", now.connected},
                             {"parent", now.parent},
                             {"parent_address", now.parent_address},
                             {"run", now.run.value()},
                             {"round", now.round.value()},
                             {"model_version", now.model ? now.model->version.value() : 0},
                             {"model_sha256", now.model ? to_hex(now.model->digest) : ""},
                             {"update_bytes_sent", now.update_bytes_sent},
                             {"update_bytes_fp32", update_bytes_fp32_},
                             {"updates_submitted", updates_submitted_},
                             {"residual_norm", residual_norm_},
                             {"doing", now.doing},
                             {"pending_round", now.pending_round.value()},
                             {"workers", now.workers},
                             {"gpus", now.gpus},
                             {"updates_summed_on_gpus", on_gpus_.summed},
                             {"updates_encoded_on_gpus", on_gpus_.encoded}};
  status["limits"] = boost::json::parse(tree::to_json(tree::own_limits()));
  status["outcomes"] = boost::json::object{{"counted", counted_}, {"late", late_}, {"refused", refused_}};
  return boost::json::serialize(status);
}

// ---- the parent, and what it says --------------------------------------------------------------------------------

void LogReport::parent_down(const Error& why, bool stopping) {
  if (stopping) return;
  if (why.code == Code::kStale) {  // the coordinator has another for it: a move that was planned
    log_.info("sent to another parent", {{"reason", why.message}});
  } else {
    log_.warn("lost the parent; the coordinator is asked for another", {{"reason", why.to_string()}});
  }
}

void LogReport::round_opened(const Offer& offer) {
  show(metrics_.round, static_cast<double>(offer.round.value()));
  if (std::exchange(run_, offer.run) != offer.run) {
    training_metrics_.forget();
    not_finite_.clear();
  }
  log_of(offer.run, offer.round)
      .info("round open",
            {{"attempt", offer.attempt}, {"model_version", offer.base.version}, {"counted", offer.counted}});
}

void LogReport::forbidden(const Offer& offer, const Objection& objection) {
  for (std::size_t i = 0; i < kOwnersRules.size(); ++i) {
    if (kOwnersRules[i] == objection.rule) metrics_.rounds_forbidden[i].add();
  }
  log_of(offer.run, offer.round)
      .warn("round declined by the rules of the site's owner; it goes on without this site, which is asked again",
            {{"reason", objection.error.message}});
}

void LogReport::round_committed(const wire::Commit& commit, const Verdict& verdict, RoundId newest) {
  show(metrics_.round, static_cast<double>(newest.value()));
  if (const auto share = training_.lap(clock_.now())) show(metrics_.training_share, *share);
  log_of(commit.run, commit.round)
      .info("round committed",
            {{"model_version", commit.model.version}, {"counted", verdict.counted.has_value()}, {"last", commit.last}});
  if (!verdict.refused) return;
  log_of(commit.run, verdict.refused_own.value_or(commit.round))
      .warn("update refused, as the commit says; it is dropped", {{"reason", wire::printable(verdict.reason)}});
}

void LogReport::run_state(RunId run, std::string_view state, std::string_view reason) {
  log_.info("run status", {{"run", run}, {"status", wire::printable(state)}, {"reason", wire::printable(reason)}});
}

void LogReport::receipt(RunId run, RoundId round, const Status& verdict) {
  const telemetry::Logger log = log_of(run, round);
  if (verdict.ok()) return log.debug("update accepted");
  log.warn("update refused by the parent; its outcome comes with the commit",
           {{"code", code_name(verdict.error().code)}, {"reason", verdict.error().message}});
}

void LogReport::outcome_told(const Pending& about, Outcome outcome) {
  log_of(about.run, about.round).info("outcome told", {{"outcome", outcome_name(outcome)}});
}

// ---- what an update is made from ---------------------------------------------------------------------------------

void LogReport::workers(std::size_t count) {
  metrics_.workers.add(static_cast<double>(count) - static_cast<double>(std::exchange(workers_, count)));
}

void LogReport::working(bool working) { training_.set(working, clock_.now()); }

void LogReport::count_training() {
  const double seconds = std::chrono::duration<double>(training_.total(clock_.now())).count();
  metrics_.training_seconds.add(std::max(0.0, seconds - training_counted_s_));
  training_counted_s_ = seconds;
}

void LogReport::fetched(double seconds) { metrics_.fetch_seconds.observe(seconds); }

void LogReport::model_held(const round::ModelRef& model) {
  log_.info("model held",
            {{"run", model.run}, {"model_version", model.version}, {"model_sha256", to_hex(model.digest)}});
  show(metrics_.model_version, static_cast<double>(model.version.value()));
}

void LogReport::training(const Offer& offer) {
  log_of(offer.run, offer.round).debug("training", {{"local_steps", offer.plan.local_steps}});
}

void LogReport::trained(const Offer& offer, std::size_t workers, std::uint32_t weight, double seconds) {
  metrics_.train_seconds.observe(seconds);
  log_of(offer.run, offer.round).info("trained", {{"workers", workers}, {"weight", weight}, {"seconds", seconds}});
}

void LogReport::train_failed(const Offer& offer, const Error& error) {
  metrics_.train_failures.add();
  log_of(offer.run, offer.round)
      .warn("training failed; this round goes on without this site", {{"reason", error.to_string()}});
}

void LogReport::encoded(const store::PendingInfo& info, double seconds) {
  const telemetry::Logger log = log_of(info.start.run, info.start.round);
  metrics_.encode_seconds.observe(seconds);
  show(metrics_.update_norm, info.p_norm);
  show(metrics_.update_weight, static_cast<double>(info.start.weight));
  if (alone_) training_metrics_.set(info.start.metrics);
  say_not_finite(log, info.start.metrics);
  log.info("update encoded", {{"bytes", info.chunk_bytes},
                              {"norm", info.p_norm},
                              {"weight", info.start.weight},
                              {"update_sha256", to_hex(info.digest)},
                              {"seconds", seconds}});
}

// The round's mean is that of the other sites: once a run and name that is said.
void LogReport::say_not_finite(const telemetry::Logger& log, const round::Metrics& metrics) {
  for (const auto& [name, value] : metrics) {
    if (round::counts(value) || !not_finite_.insert(name).second) continue;
    log.warn("a metric of the site's workers is not finite; the round's mean is that of the other sites",
             {{"metric", name}});
  }
}

void LogReport::pass_encoded(const store::PendingInfo& info) {
  log_of(info.start.run, info.start.round)
      .info("pass encoded", {{"pass", info.start.from.pass + 1},
                             {"bytes", info.chunk_bytes},
                             {"update_sha256", to_hex(info.digest)},
                             {"mean_sha256", to_hex(info.start.from.mean)}});
}

// Other codecs let the parent refuse an update that is too long alone. A pass is fitted whatever makes it too long.
void LogReport::pass_scaled(const Offer& offer, float factor) {
  log_of(offer.run, offer.round)
      .warn(
          "what a pass sends is scaled down to the plan's bounds, also where training alone is beyond them; the rest "
          "is in the residual",
          {{"pass", offer.pass_index() + 1}, {"factor", factor}});
}

void LogReport::not_encoded(const Offer& offer, const Error& error) {
  log_of(offer.run, offer.round)
      .warn("update cannot be encoded; this round goes on without this site", {{"reason", error.to_string()}});
}

void LogReport::waits_for_room(const Offer& offer, const Error& error) {
  log_of(offer.run, offer.round)
      .warn("the round waits for room on the disk; it goes on once there is some", {{"reason", error.message}});
}

void LogReport::folded(const Offer& offer, const store::Carried& carried, bool run_over) {
  count(Outcome::kLate);
  log_of(offer.run, offer.round).warn(late_text(run_over), {{"residual_norm", carried.residual.norm}});
}

void LogReport::not_folded(const Offer& offer, const Error& error) {
  metrics_.residuals_dropped.add();
  log_of(offer.run, offer.round)
      .warn("late update dropped; the next round begins without it", {{"reason", error.to_string()}});
}

void LogReport::last_model_missing(RunId run, RoundId round) {
  log_of(run, round).warn("the last model does not arrive; the run ends for its workers without it");
}

void LogReport::gpus_used(const SiteGpus::Counts& so_far) {
  metrics_.gpu_memory_bytes.add(static_cast<double>(so_far.memory_bytes) - static_cast<double>(on_gpus_.memory_bytes));
  metrics_.gpu_sum_seconds.add(so_far.sum_seconds - on_gpus_.sum_seconds);
  metrics_.gpu_encode_seconds.add(so_far.encode_seconds - on_gpus_.encode_seconds);
  metrics_.gpu_sums.add(static_cast<double>(so_far.summed - on_gpus_.summed));
  metrics_.gpu_encodings.add(static_cast<double>(so_far.encoded - on_gpus_.encoded));
  on_gpus_ = so_far;
}

// ---- the submission ----------------------------------------------------------------------------------------------

void LogReport::found(const store::PendingInfo& info) {
  log_of(info.start.run, info.start.round)
      .info("a submission waits for its outcome", {{"update_sha256", to_hex(info.digest)}});
}

void LogReport::sending(const Send& effect) {
  log_of(effect.offer.run, effect.offer.round)
      .debug("sending update", {{"lease_epoch", effect.offer.lease}, {"first_chunk", effect.first_chunk}});
}

void LogReport::sent(const store::PendingInfo& info, bool again, double seconds) {
  metrics_.upload_seconds.observe(seconds);
  const bool is_whole = info.start.is_last_pass();  // what travels in the passes before it is no update yet
  bytes_.update(info.start.codec, info.chunk_bytes, is_whole ? info.start.value_count : 0);
  if (again) {
    metrics_.updates_resent.add();
  } else if (is_whole) {
    ++updates_submitted_;
    update_bytes_fp32_ += info.start.value_count * sizeof(float);
    metrics_.updates_submitted.add();
  }
  log_of(info.start.run, info.start.round)
      .info(again ? "update sent again" : "update sent", {{"bytes", info.chunk_bytes}, {"seconds", seconds}});
}

void LogReport::count(Outcome outcome) {
  if (outcome == Outcome::kCounted) ++counted_, metrics_.outcomes_counted.add();
  if (outcome == Outcome::kLate) ++late_, metrics_.outcomes_late.add();
  if (outcome == Outcome::kRefused) ++refused_, metrics_.outcomes_refused.add();
}

void LogReport::resolved(const Pending& pending, Outcome outcome, bool run_over) {
  count(outcome);
  log_of(pending.run, pending.round)
      .log(outcome == Outcome::kCounted ? telemetry::Level::kInfo : telemetry::Level::kWarn,
           outcome == Outcome::kCounted ? "update counted"
           : outcome == Outcome::kLate  ? late_text(run_over)
                                        : "update refused; it is dropped",
           {{"outcome", outcome_name(outcome)}});
}

void LogReport::not_written(const Pending& pending, Outcome outcome, const Error& error) {
  log_of(pending.run, pending.round)
      .error("the outcome cannot be written; it is tried again",
             {{"outcome", outcome_name(outcome)}, {"reason", error.to_string()}});
}

// ---- what is carried over ----------------------------------------------------------------------------------------

void LogReport::residual(RunId run, RoundId round, const store::Carried& carried) {
  residual_norm_ = carried.residual.norm;
  show(metrics_.residual_norm, carried.residual.norm);
  show(metrics_.residual_age_rounds, static_cast<double>(carried.residual.age_rounds));
  if (carried.dropped.empty()) return;
  metrics_.residuals_dropped.add();
  log_of(run, round).warn(kResidualDropped, {{"reason", carried.dropped}});
}

void LogReport::residual_lost(RunId run, RoundId round, std::uint64_t values) {
  metrics_.residuals_dropped.add();
  const std::string reason = std::to_string(values) + " values of it are no numbers or too large: its file is damaged";
  log_of(run, round).warn(kResidualDropped, {{"reason", reason}});
}

void LogReport::unspent(RunId run, const std::vector<store::Unspent>& unspent) {
  if (!unspent.empty()) show(metrics_.residual_unspent_norm, 0);
  for (const store::Unspent& left : unspent) {
    const telemetry::Logger log =
        log_.with({{"run", run}, {"of_run", left.run}, {"residual_norm", left.residual.norm}});
    if (left.carried_over) {
      log.info("the residual of a run before goes into this one, which continues it");
    } else {
      metrics_.residuals_dropped.add();
      log.warn("the residual of a run before is dropped; this run does not continue that one");
    }
  }
}

void LogReport::run_complete(RunId run, const Result<store::ResidualInfo>& unspent) {
  if (!unspent.ok()) {
    log_.error("what a run left cannot be read; its norm is not told",
               {{"run", run}, {"reason", unspent.error().to_string()}});
    return;
  }
  show(metrics_.residual_unspent_norm, unspent->norm);
  log_.info("run complete", {{"run", run}, {"residual_norm", unspent->norm}});
}

// ---- histories ---------------------------------------------------------------------------------------------------

void LogReport::history_refused(const Error& error) {
  log_.error("the lease is not taken; another is asked for", {{"reason", error.message}});
}

void LogReport::history_not_written(const Error& error) {
  log_.error("the new history cannot be written; it is tried again", {{"reason", error.to_string()}});
}

void LogReport::put_aside(const store::PutAside& aside) {
  if (aside.run_lost) {
    log_.warn("a run is lost with the history before; what was carried over is dropped",
              {{"run", aside.run}, {"residual_norm", aside.residual.norm}});
    if (!aside.residual.zero) metrics_.residuals_dropped.add();
    return;
  }
  if (aside.undone) {
    log_.warn("rounds up to this one are lost with the history before; what counted in them is lost, too",
              {{"run", aside.run}, {"round", *aside.undone}});
  }
  if (aside.late) {
    count(Outcome::kLate);
    log_of(aside.run, *aside.late)
        .warn("update late, its round is lost with the history before; it goes into the next one",
              {{"residual_norm", aside.residual.norm}});
  }
  residual(aside.run, aside.late.value_or(RoundId(0)), {aside.residual, aside.dropped});
}

void LogReport::history_entered(const round::Lineage& lineage) {
  log_.warn(
      "another history of the federation; this site goes on in it",
      {{"history", std::to_string(round::current_of(lineage).value())}, {"began_at_epoch", round::began_of(lineage)}});
}

void LogReport::failed(std::string_view what, const Error& error) {
  log_.error("a part of the agent failed; the agent ends, to be started again",
             {{"part", what}, {"reason", error.to_string()}});
}

}  // namespace fluvial::edge
