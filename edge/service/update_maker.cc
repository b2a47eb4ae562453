#include "edge/service/update_maker.h"

#include <algorithm>
#include <atomic>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <utility>

#include "core/net/pool_parallel.h"
#include "edge/reduce/cost.h"

namespace fluvial::edge {
namespace {

double seconds_since(const Clock& clock, TimePoint begun) {
  return std::chrono::duration<double>(clock.now() - begun).count();
}

}  // namespace

struct UpdateMaker::Made {
  std::vector<store::Unspent> unspent;
  std::atomic<std::uint64_t> residual_lost = 0;
  float pass_factor = 1;
  TimePoint p_made;          // all of it
  TimePoint encoding_begun;  // of a codec that takes chunks as they come: before p is made
  TimePoint written;         // and is to be made durable
};

UpdateMaker::UpdateMaker(SiteContext& site, Events events)
    : site_(site),
      events_(std::move(events)),
      early_(site.runtime, site.tasks, site.gpus, {[this] { events_.reads(); }, [this] { events_.read(); }}) {}

void UpdateMaker::choose_reduction(std::string_view setting, std::size_t workers) {
  constexpr std::size_t kMeasuredMax = 8;  // ranks; more of them cost what their sums cost
  reduction_ = Algorithm::kDirect;
  if (const auto named = parse_algorithm(setting); named.ok()) {
    reduction_ = *named;
    return;
  }
  workers = std::min(workers, kRanksMax);
  if (workers == 1) return;
  const auto seconds = [] {
    return std::chrono::duration<double>(std::chrono::steady_clock::now().time_since_epoch()).count();
  };
  const CostModel model = fit(measure(std::min(workers, kMeasuredMax), seconds));
  const Choice choice = choose(model, workers, round::Plan().chunk_values);
  site_.runtime.log.info("reduction chosen", {{"algorithm", algorithm_name(choice.algorithm)},
                                              {"workers", workers},
                                              {"reason", choice.reason},
                                              {"alpha_s", model.alpha},
                                              {"beta_s_per_byte", model.beta},
                                              {"gamma_s_per_addition", model.gamma}});
  reduction_ = choice.algorithm;
}

void UpdateMaker::in_place(const TrainJob& job, std::vector<TrainedPart> parts, const round::ByteRanges& ready) {
  early_.add(job.base, job.plan.chunk_values, reduction_, std::move(parts), ready);
}

Trained UpdateMaker::take_trained(const Offer& offer) {
  FLUVIAL_CHECK(trained_ && trained_->base.ref == offer.base, "to encode what was not trained");
  return *std::exchange(trained_, std::nullopt);
}

UpdateJob UpdateMaker::job_of(const Offer& offer, const Trained& trained, PartialMean* early, Made* made) const {
  UpdateJob job{offer.run, offer.round, site_.self, offer.plan, trained.base.schema};
  job.base_digest = trained.base.ref.digest;
  job.base = trained.base.bytes->bytes();
  job.parts = views_of(trained.parts);
  job.late_factor = round::late_factor(offer.late);
  job.weight = trained.weight;
  job.metrics = trained.metrics;
  job.workers = trained.workers();
  job.reduction = reduction_;
  job.early = early;
  job.gpus = site_.gpus.get();
  job.site_name = site_.name;
  job.residual_lost = &made->residual_lost;
  job.pass_factor = &made->pass_factor;
  job.reached = [made, clock = &site_.runtime.clock](UpdateJob::Step step) {
    switch (step) {
      case UpdateJob::Step::kReduced: made->p_made = clock->now(); break;
      case UpdateJob::Step::kEncode: made->encoding_begun = clock->now(); break;
      case UpdateJob::Step::kPersist: made->written = clock->now(); break;
    }
  };
  return job;
}

// Blocking; before an update of the run is made.
Result<std::vector<store::Unspent>> UpdateMaker::begin_run(const Offer& offer, const Trained& trained) {
  return site_.store->begin_run(offer.run, offer.continues, trained.base.schema.value_count());
}

// What a step has encoded is on its way while the next one is made.
net::Awaitable<Result<store::PendingUpdate>> UpdateMaker::make(const Encode& effect, const Trained& trained,
                                                               ByteSpan codec_state, PartialMean* early, Made* made) {
  net::WorkerPool& pool = site_.runtime.pool;
  UpdateJob job = job_of(effect.offer, trained, early, made);
  job.digest_kind = site_.digest_kind;  // as of now: the next parent may take another
  FLUVIAL_CO_ASSIGN(made->unspent, co_await pool.run([&] { return begin_run(effect.offer, trained); }));
  net::PoolParallel parallel(pool);
  if (effect.offer.pass && effect.offer.pass->count > 1) {
    co_return co_await pool.run([&] { return encode_first_pass(job, codec_state, *site_.store, parallel); });
  }
  job.handed = codec_state;
  Encoding encoding(job, *site_.store, parallel);
  for (;;) {
    FLUVIAL_CO_ASSIGN(std::optional<store::PendingUpdate> durable,
                      co_await pool.run([&encoding] { return encoding.step(); }));
    if (durable) co_return std::move(*durable);
    std::shared_ptr<const Feed> feed = encoding.feed();
    if (feed && !site_.stopping) events_.fed(effect.work, std::move(feed));
  }
}

// With these goes the workers' memory, and who waited for that hears of the run's end.
void UpdateMaker::results_are_read(std::shared_ptr<PartialMean> early, std::vector<TrainedPart> parts) {
  early.reset();
  parts.clear();
  if (site_.gpus) site_.report.gpus_used(site_.gpus->counts());
  events_.read();
}

void UpdateMaker::report(const Offer& offer, const Made& made) {
  if (made.residual_lost > 0) site_.report.residual_lost(offer.run, offer.round, made.residual_lost);
  if (made.pass_factor < 1) site_.report.pass_scaled(offer, made.pass_factor);
}

void UpdateMaker::note_spans(const Offer& offer, TimePoint begun, const Made& made) {
  const TimePoint durable = site_.runtime.clock.now();
  site_.spans.add(offer.run, offer.round, {round::SpanKind::kReduce, {}, begun, made.p_made});
  site_.spans.add(offer.run, offer.round, {round::SpanKind::kEncode, {}, made.encoding_begun, made.written});
  site_.spans.add(offer.run, offer.round, {round::SpanKind::kPersist, {}, made.written, durable});
}

// Nothing is trained twice for want of room: what the workers gave stays in their memory until there is some. False:
// room is not what is missing, or nobody waits for the update any more.
net::Awaitable<bool> UpdateMaker::room_comes(const Encode& effect, const Error& why) {
  if (why.code != Code::kResourceExhausted || !site_.free_bytes || site_.stopping) co_return false;
  const std::uint64_t full = co_await site_.ask_free_bytes();
  if (full >= kRoomMarginBytes + 3 * effect.offer.base.bytes) co_return false;
  events_.no_room(effect.offer, why);
  while (co_await site_.pause_for_room()) {
    if (events_.is_given_up(effect.work)) co_return false;
    if (co_await site_.ask_free_bytes() > full) co_return true;
  }
  co_return false;
}

void UpdateMaker::encode(const Encode& effect, SharedBytes codec_state) {
  site_.spawn("encode", run(effect, take_trained(effect.offer), std::move(codec_state)));
}

net::Awaitable<void> UpdateMaker::run(Encode effect, Trained trained, SharedBytes codec_state) {
  const TimePoint begun = site_.runtime.clock.now();
  const Offer& offer = effect.offer;
  std::shared_ptr<PartialMean> early = co_await early_.take(trained.parts);
  Made made;
  site_.report.encoding(offer);
  Result<store::PendingUpdate> update = co_await make(effect, trained, codec_state.bytes, early.get(), &made);
  while (!update.ok() && !site_.store->fault() && co_await room_comes(effect, update.error())) {
    early.reset();  // it is used up
    update = co_await make(effect, trained, codec_state.bytes, nullptr, &made);
  }
  site_.report.unspent(offer.run, made.unspent);
  results_are_read(std::move(early), std::move(trained.parts));
  // What is durable is found at the next start.
  if (site_.stopping || (!update.ok() && site_.store_failed())) co_return;
  if (!update.ok()) {
    site_.outcomes.dropped(offer.run, offer.round);
    site_.report.not_encoded(offer, update.error());
    events_.not_used(offer, update.error());
    events_.encode_failed(effect.work, update.error());
    (void)site_.gpu_failed();
    co_return;
  }
  report(offer, made);
  note_spans(offer, begun, made);
  site_.report.encoded(update->info(), seconds_since(site_.runtime.clock, begun));
  events_.encoded(effect.work, std::move(*update));
}

void UpdateMaker::encode_pass(const EncodePass& effect, SharedBytes mean) {
  site_.spawn("encode pass", run(effect, std::move(mean)));
}

net::Awaitable<void> UpdateMaker::run(EncodePass effect, SharedBytes mean) {
  const TimePoint begun = site_.runtime.clock.now();
  const Offer& offer = effect.offer;
  float factor = 1;
  const PassJob job{offer.run,   offer.round,   offer.plan, offer.pass->made_from(), mean.bytes,
                    offer.epoch, offer.attempt, site_.name, site_.digest_kind,       &factor};
  net::PoolParallel parallel(site_.runtime.pool);
  site_.report.encoding_pass(offer);
  Result<store::PendingUpdate> made =
      co_await site_.runtime.pool.run([&] { return edge::encode_pass(job, *site_.store, parallel); });
  if (site_.stopping || (!made.ok() && site_.store_failed())) co_return;
  if (!made.ok()) {
    site_.report.not_encoded(offer, made.error());
    events_.pass_failed(made.error());
    co_return;
  }
  site_.spans.add(offer.run, offer.round, {round::SpanKind::kEncode, {}, begun, site_.runtime.clock.now()});
  if (factor < 1) site_.report.pass_scaled(offer, factor);
  site_.report.pass_encoded(made->info());
  events_.pass_encoded(std::move(*made));
}

void UpdateMaker::fold(const Fold& effect) { site_.spawn("fold", run(effect, take_trained(effect.offer))); }

net::Awaitable<void> UpdateMaker::run(Fold effect, Trained trained) {
  const Offer& offer = effect.offer;
  std::shared_ptr<PartialMean> early = co_await early_.take(trained.parts);
  Made made;
  if (!effect.run_lost) site_.report.folding(effect);
  const Result<store::Carried> folded = co_await site_.runtime.pool.run([&]() -> Result<store::Carried> {
    if (effect.run_lost) return Error{Code::kCancelled, "its run is lost with the history before"};
    FLUVIAL_ASSIGN(made.unspent, begin_run(offer, trained));
    net::PoolParallel parallel(site_.runtime.pool);
    UpdateJob job = job_of(offer, trained, early.get(), &made);
    job.lost = effect.lost;
    return fold_update(job, *site_.store, parallel);
  });
  site_.report.unspent(offer.run, made.unspent);
  results_are_read(std::move(early), std::move(trained.parts));
  if (folded.ok()) {
    site_.outcomes.decided(offer.run, offer.round, Outcome::kLate);
    site_.report.folded(offer, *folded, site_.is_over(offer.run));
    site_.report.residual(offer.run, offer.round, *folded);
    report(offer, made);
  } else {
    site_.outcomes.dropped(offer.run, offer.round);
    site_.report.not_folded(offer, folded.error());
    if (site_.store_failed() || site_.gpu_failed()) co_return;
    if (!site_.stopping && !effect.run_lost) events_.not_used(offer, folded.error());
  }
  if (!site_.stopping) events_.folded(effect.work);
}

}  // namespace fluvial::edge
