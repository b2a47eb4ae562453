// What the machine decides.
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <utility>

#include "core/net/backoff.h"
#include "core/net/deadline.h"
#include "core/net/pool_parallel.h"
#include "core/transfer/outcome.h"
#include "core/wire/record_mapping.h"
#include "edge/service/service.h"

namespace fluvial::edge {
namespace {

store::Outcome stored(Outcome outcome) {
  switch (outcome) {
    case Outcome::kPending: return store::Outcome::kPending;
    case Outcome::kCounted: return store::Outcome::kCounted;
    case Outcome::kLate: return store::Outcome::kLate;
    case Outcome::kRefused: return store::Outcome::kRefused;
  }
  return store::Outcome::kPending;
}

double seconds_since(const Clock& clock, TimePoint begun) {
  return std::chrono::duration<double>(clock.now() - begun).count();
}

}  // namespace

// In the order in which they were decided, also when carrying one out makes the machine decide more.
void EdgeService::carry_out(Effects effects) {
  if (stopping_) return;
  for (Effect& effect : effects) effects_.push_back(std::move(effect));
  if (carrying_out_) return;
  carrying_out_ = true;
  while (!effects_.empty()) {
    const Effect effect = std::move(effects_.front());
    effects_.pop_front();
    std::visit([this](const auto& decided) { apply(decided); }, effect);
  }
  carrying_out_ = false;
}

// ---- the model -------------------------------------------------------------------------------------------------

void EdgeService::apply(const FetchModel& effect) { fetch_.want(effect.model); }

void EdgeService::on_model(HeldModel model) {
  if (stopping_) return;
  const round::ModelRef ref = model.ref;
  runtime_.log.info("model held",
                    {{"run", ref.run}, {"model_version", ref.version}, {"model_sha256", to_hex(ref.digest)}});
  held_ = std::move(model);
  model_version_.set(static_cast<double>(ref.version.value()));
  tell_committed();  // before the next task
  carry_out(machine_->model_ready(ref));
}

// ---- training and encoding -------------------------------------------------------------------------------------

void EdgeService::apply(const Train& effect) {
  const Offer& offer = effect.offer;
  FLUVIAL_CHECK(held_ && held_->ref == offer.base, "to train from a model that is not here");
  const TimePoint begun = runtime_.clock.now();
  log_of(offer.run, offer.round).debug("training", {{"local_steps", offer.plan.local_steps}});
  desk_.train({offer.run, offer.round, offer.plan, *held_},
              [this, effect, begun](Result<Trained> trained) { on_trained(effect, begun, std::move(trained)); });
}

void EdgeService::on_trained(const Train& effect, TimePoint begun, Result<Trained> trained) {
  const RunId run = effect.offer.run;
  const RoundId round = effect.offer.round;
  const double seconds = seconds_since(runtime_.clock, begun);
  if (!trained.ok()) {
    log_of(run, round).warn("training failed", {{"reason", trained.error().to_string()}});
    early_.drop();
    tell_end_if_due();
    carry_out(machine_->train_failed(effect.work, trained.error()));
    return;
  }
  metrics_.train_seconds.observe(seconds);
  log_of(run, round)
      .info("trained", {{"workers", trained->parts.size()}, {"weight", trained->weight}, {"seconds", seconds}});
  trained_ = std::move(*trained);
  reading_results_ = true;  // until they are an update
  desk_.outcomes().used(run, round, trained_->workers());
  carry_out(machine_->trained(effect.work));
}

Trained EdgeService::take_trained(const Offer& offer) {
  FLUVIAL_CHECK(trained_ && trained_->base.ref == offer.base, "to encode what was not trained");
  return *std::exchange(trained_, std::nullopt);
}

UpdateJob EdgeService::job_of(const Offer& offer, const Trained& trained, PartialMean* early,
                              std::atomic<std::uint64_t>* residual_lost) const {
  UpdateJob job{offer.run, offer.round, self_.node, offer.plan, trained.base.schema};
  job.base_digest = trained.base.ref.digest;
  job.base = trained.base.bytes->bytes();
  job.parts = views_of(trained.parts);
  job.weight = weight_to_claim(offer, trained.weight);
  job.metrics = trained.metrics;
  job.workers = trained.workers();
  job.reduction = reduction_;
  job.early = early;
  job.gpus = gpus_.get();
  job.residual_lost = residual_lost;
  return job;
}

// With these goes the workers' memory, and who waited for that hears of the run's end.
void EdgeService::results_are_read(std::shared_ptr<PartialMean> early, std::vector<TrainedPart> parts) {
  early.reset();
  parts.clear();
  reading_results_ = false;
  note_gpus();
  tell_end_if_due();
}

void EdgeService::apply(const Encode& effect) { process_.spawn("encode", encode(effect, take_trained(effect.offer))); }

net::Awaitable<void> EdgeService::encode(Encode effect, Trained trained) {
  const Offer& offer = effect.offer;
  const TimePoint begun = runtime_.clock.now();
  const telemetry::Logger log = log_of(offer.run, offer.round);
  std::shared_ptr<PartialMean> early = co_await early_.take(trained.parts);
  std::vector<store::Unspent> unspent;
  std::atomic<std::uint64_t> residual_lost = 0;
  Result<store::PendingUpdate> update = co_await runtime_.pool.run([&]() -> Result<store::PendingUpdate> {
    FLUVIAL_ASSIGN(unspent, begin_run(offer, trained));
    net::PoolParallel parallel(runtime_.pool);
    return encode_update(job_of(offer, trained, early.get(), &residual_lost), *store_, parallel);
  });
  note_unspent(offer.run, unspent);
  results_are_read(std::move(early), std::move(trained.parts));
  if (stopping_ || (!update.ok() && store_failed())) co_return;  // what is durable is found at the next start
  if (!update.ok()) {
    desk_.outcomes().dropped(offer.run, offer.round);
    log.warn("update not sent: it cannot be encoded", {{"reason", update.error().to_string()}});
    carry_out(machine_->encode_failed(effect.work, update.error()));
    (void)gpu_failed();
    co_return;
  }
  const double seconds = seconds_since(runtime_.clock, begun);
  metrics_.encode_seconds.observe(seconds);
  pending_ = std::make_shared<const store::PendingUpdate>(std::move(*update));
  const store::PendingInfo& info = pending_->info();
  note_lost(offer.run, offer.round, residual_lost);
  if (info.start.weight < trained.weight) {
    log.warn("the update claims less than its weight: the round has less on record for this site",
             {{"weight", trained.weight}, {"claimed", info.start.weight}});
  }
  log.info("update encoded", {{"bytes", info.chunk_bytes},
                              {"norm", info.p_norm},
                              {"weight", info.start.weight},
                              {"digest", to_hex(info.digest)},
                              {"seconds", seconds}});
  carry_out(machine_->encoded(effect.work, pending_of(info)));
}

void EdgeService::apply(const Fold& effect) { process_.spawn("fold", fold(effect, take_trained(effect.offer))); }

net::Awaitable<void> EdgeService::fold(Fold effect, Trained trained) {
  const Offer& offer = effect.offer;
  const telemetry::Logger log = log_of(offer.run, offer.round);
  std::shared_ptr<PartialMean> early = co_await early_.take(trained.parts);
  std::vector<store::Unspent> unspent;
  std::atomic<std::uint64_t> residual_lost = 0;
  const Result<store::Carried> folded = co_await runtime_.pool.run([&]() -> Result<store::Carried> {
    if (effect.run_lost) return Error{Code::kCancelled, "its run is lost with the history before"};
    FLUVIAL_ASSIGN(unspent, begin_run(offer, trained));
    net::PoolParallel parallel(runtime_.pool);
    UpdateJob job = job_of(offer, trained, early.get(), &residual_lost);
    job.lost = effect.lost;
    return fold_update(job, *store_, parallel);
  });
  note_unspent(offer.run, unspent);
  results_are_read(std::move(early), std::move(trained.parts));
  if (folded.ok()) {
    ++counts_.late;
    metrics_.outcomes_late.add();
    desk_.outcomes().decided(offer.run, offer.round, Outcome::kLate);
    log.warn(late_text(offer.run), {{"residual_norm", folded->residual.norm}});
    note_residual(offer.run, offer.round, *folded);
    note_lost(offer.run, offer.round, residual_lost);
  } else {
    metrics_.residuals_dropped.add();
    desk_.outcomes().dropped(offer.run, offer.round);
    log.warn("late update dropped", {{"reason", folded.error().to_string()}});
    if (store_failed() || gpu_failed()) co_return;
  }
  if (stopping_) co_return;
  carry_out(machine_->folded(effect.work));
}

// ---- the submission --------------------------------------------------------------------------------------------

void EdgeService::apply(const Send& effect) {
  FLUVIAL_CHECK(pending_, "to send what is not there");
  if (!uplink_.is_up()) return;  // offered again after the next connect
  log_of(effect.offer.run, effect.offer.round)
      .debug("sending update", {{"lease_epoch", effect.offer.lease}, {"first_chunk", effect.first_chunk}});
  upload_.send({pending_, self_.node, effect.offer.lease, uplink_.session(), effect.first_chunk});
}

void EdgeService::apply(const StopSending&) { upload_.stop(); }

void EdgeService::on_sent(const UploadItem& item, double seconds) {
  const store::PendingInfo& info = item.update->info();
  metrics_.upload_seconds.observe(seconds);
  const bool again = submission_sent_ == info.submission;
  if (again) {
    metrics_.updates_resent.add();
  } else {
    submission_sent_ = info.submission;
    ++counts_.updates_submitted;
    counts_.update_bytes_fp32 += info.start.value_count * sizeof(float);
    metrics_.updates_submitted.add();
  }
  log_of(info.start.run, info.start.round)
      .info(again ? "update sent again" : "update sent", {{"bytes", info.chunk_bytes}, {"seconds", seconds}});
}

void EdgeService::apply(const Ask& effect) {
  uplink_.post(transfer::outcome_query(effect.pending.run, effect.pending.round, self_.node, effect.pending.digest));
}

void EdgeService::apply(const AskRun& effect) { uplink_.post(transfer::run_query(effect.run, self_.node)); }

void EdgeService::apply(const DeclineRound& effect) {
  uplink_.post(wire::to_envelope(round::Decline{effect.run, effect.round, effect.attempt, {self_.node, effect.error}}));
}

// ---- outcomes --------------------------------------------------------------------------------------------------

void EdgeService::apply(const Resolve& effect) { process_.spawn("resolve", resolve(effect.pending, effect.outcome)); }

// Only a process that starts anew knows what is on the disk: this one ends, and says why.
bool EdgeService::store_failed() { return ends_by(store_->fault(), "the site's store"); }

// To one that starts anew alone does a GPU answer again, if it does.
bool EdgeService::gpu_failed() { return gpus_ && ends_by(gpus_->fault(), "a GPU"); }

bool EdgeService::ends_by(const std::optional<Error>& fault, std::string_view what) {
  if (!fault) return false;
  if (!failure_) {
    failure_ = fault;
    runtime_.log.error(std::string(what) + " failed: the agent ends, to be started again",
                       {{"reason", fault->to_string()}});
    process_.request_stop();
  }
  return true;
}

void EdgeService::note_gpus() {
  if (!gpus_) return;
  const SiteGpus::Counts now = gpus_->counts();
  metrics_.gpu_sums.add(static_cast<double>(now.summed - on_gpus_.summed));
  metrics_.gpu_encodings.add(static_cast<double>(now.encoded - on_gpus_.encoded));
  on_gpus_ = now;
}

// Nothing goes on before it is on disk: a disk that fails is tried again.
net::Awaitable<void> EdgeService::resolve(Pending pending, Outcome outcome) {
  net::Backoff backoff(runtime_.backoff, Rng(pending.round.value()));
  for (;;) {
    const Result<store::Carried> carried = co_await runtime_.pool.run(
        [&] { return resolve_pending(*store_, pending.run, pending.round, stored(outcome)); });
    if (carried.ok()) {
      note_outcome(pending, outcome);
      note_residual(pending.run, pending.round, *carried);
      break;
    }
    log_of(pending.run, pending.round)
        .error("the outcome cannot be written; trying again",
               {{"outcome", outcome_name(outcome)}, {"reason", carried.error().to_string()}});
    if (stopping_ || store_failed()) co_return;
    const Status slept = co_await net::with_deadline(stop_.wait(), backoff.next());
    (void)slept.ok();  // the wait is over, or stopping_ is set
    if (stopping_) co_return;
  }
  if (stopping_) co_return;
  pending_.reset();
  carry_out(machine_->resolved(pending));
}

void EdgeService::note_outcome(const Pending& pending, Outcome outcome) {
  desk_.outcomes().decided(pending.run, pending.round, outcome);
  if (outcome == Outcome::kCounted) ++counts_.counted, metrics_.outcomes_counted.add();
  if (outcome == Outcome::kLate) ++counts_.late, metrics_.outcomes_late.add();
  if (outcome == Outcome::kRefused) ++counts_.refused, metrics_.outcomes_refused.add();
  log_of(pending.run, pending.round)
      .log(outcome == Outcome::kCounted ? telemetry::Level::kInfo : telemetry::Level::kWarn,
           outcome == Outcome::kCounted ? "update counted"
           : outcome == Outcome::kLate  ? late_text(pending.run)
                                        : "update refused: it is dropped",
           {{"outcome", outcome_name(outcome)}});
}

void EdgeService::note_residual(RunId run, RoundId round, const store::Carried& carried) {
  counts_.residual_norm = carried.residual.norm;
  metrics_.residual_norm.set(carried.residual.norm);
  metrics_.residual_age_rounds.set(static_cast<double>(carried.residual.age_rounds));
  if (carried.dropped.empty()) return;
  metrics_.residuals_dropped.add();
  log_of(run, round).warn("residual dropped", {{"reason", carried.dropped}});
}

// The rest of the residual is in the update.
void EdgeService::note_lost(RunId run, RoundId round, std::uint64_t values) {
  if (values == 0) return;
  metrics_.residuals_dropped.add();
  const std::string reason = std::to_string(values) + " values of it are no numbers or too large: its file is damaged";
  log_of(run, round).warn("residual dropped", {{"reason", reason}});
}

void EdgeService::apply(const CompleteRun& effect) {
  if (!gpu_failed()) process_.spawn("run over", run_over(effect.run));
}

// What is unspent stays until another run begins: that one may continue it.
net::Awaitable<void> EdgeService::run_over(RunId run) {
  const Result<store::ResidualInfo> unspent = co_await runtime_.pool.run([this, run] {
    if (gpus_) gpus_->release();
    return store_->residual(run);
  });
  desk_.outcomes().forget(run);
  if (!unspent.ok()) {
    runtime_.log.error("what a run left cannot be read", {{"run", run}, {"reason", unspent.error().to_string()}});
    co_return;
  }
  metrics_.residual_unspent_norm.set(unspent->norm);
  runtime_.log.info("run complete", {{"run", run}, {"unspent_residual_norm", unspent->norm}});
}

// Blocking; before an update of the run is made.
Result<std::vector<store::Unspent>> EdgeService::begin_run(const Offer& offer, const Trained& trained) {
  return store_->begin_run(offer.run, offer.continues, trained.base.schema.value_count());
}

void EdgeService::note_unspent(RunId run, const std::vector<store::Unspent>& unspent) {
  if (!unspent.empty()) metrics_.residual_unspent_norm.set(0);
  for (const store::Unspent& left : unspent) {
    const telemetry::Logger log = runtime_.log.with({{"run", run}, {"of_run", left.run}, {"norm", left.residual.norm}});
    if (left.carried_over) {
      log.info("the residual of a run before goes into this one, which continues it");
    } else {
      metrics_.residuals_dropped.add();
      log.warn("the residual of a run before is dropped: this one does not continue it");
    }
  }
}

}  // namespace fluvial::edge
