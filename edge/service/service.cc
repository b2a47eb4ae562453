#include "edge/service/service.h"

#include <fmt/format.h>

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <set>
#include <utility>

#include "core/net/deadline.h"
#include "core/transfer/outcome.h"
#include "core/wire/record_mapping.h"
#include "edge/service/mapped_model.h"

namespace fluvial::edge {
namespace {
constexpr double kStatesPerSecond = 4;
constexpr double kStatesAtOnce = 64;
}  // namespace

EdgeService::EdgeService(tree::Runtime& runtime, const config::EdgeSettings& settings, Parts parts)
    : settings_(settings),
      self_(std::move(parts.self)),
      trainers_(parts.trainers),
      set_ready_(std::move(parts.set_ready)),
      site_{.runtime = runtime,
            .tasks = parts.tasks,
            .self = self_.node,
            .store = std::move(parts.store),
            .gpus = std::move(parts.gpus),
            .report = parts.report,
            .key = std::move(parts.key),
            .outcomes = parts.trainers.outcomes(),
            .request_stop = std::move(parts.request_stop),
            .is_over = [this](RunId run) { return machine_->is_over(run); },
            .stopped = net::AsyncSignal(runtime.strand),
            .name = self_.name,
            .free_bytes = std::move(parts.free_bytes)},
      owner_(settings_.policy, runtime.clock, site_.report),
      uplink_(site_.runtime, *this, std::move(parts.uplink), std::move(parts.dial)),
      models_(site_.runtime, site_.tasks, model_owner()),
      vectors_(
          site_.runtime, site_.tasks, [this](v1::Envelope message) { uplink_.post(std::move(message)); },
          [this](const round::ModelRef& ref, const SharedBytes& bytes) { on_vector(ref, bytes); }),
      submission_(site_, uplink_, settings_.policy.upload_bytes_per_s,
                  {.resolved = [this](const Pending& pending) { carry_out(machine_->resolved(pending)); },
                   .sending = [this] { reporter_.changed(); }}),
      maker_(site_, maker_events()),
      histories_(site_, history_events()),
      news_(site_, trainers_, models_, site_.gpus != nullptr, std::chrono::milliseconds(settings.model_deadline_ms),
            [this] { maker_.drop_early(); }),
      states_(kStatesPerSecond, kStatesAtOnce, runtime.clock.now()),
      common_models_(parts.common_models),
      certificate_ends_(parts.certificate_ends),
      renewal_(parts.renewal),
      reporter_(
          site_.runtime, [this] { return own_report(); },
          [this](v1::Envelope message) { uplink_.post(std::move(message)); }) {}

EdgeService::~EdgeService() = default;

tree::ModelReceiver::Owner EdgeService::model_owner() {
  tree::ModelReceiver::Owner owner;
  owner.post = [this](v1::Envelope message) { uplink_.post(std::move(message)); };
  owner.sink = [this](const round::ModelRef& model, tree::ModelReceiver::Owner::As) {
    const auto begun = [this] { schema_from_ = uplink_.lease().parent; };
    return std::make_shared<MappedModel>(site_.runtime.pool, model_memory_, model, begun, [this](HeldModel held) {
      if (common_models_ != nullptr) {
        const CommonModels::Which which = common(held.ref, schema_from_);
        held = common_models_->fetched(this, which, std::move(held));
      }
      on_model(std::move(held));
    });
  };
  owner.have = [this]() -> std::optional<tree::ModelReceiver::Held> {
    if (!held_) return std::nullopt;
    return tree::ModelReceiver::Held{held_->ref, {held_->bytes, held_->bytes->bytes()}};
  };
  owner.refused = [this](const round::ModelRef& model, const Error& why) {
    site_.report.model_refused(model, why);
    if (common_models_ != nullptr) common_models_->cannot_fetch(this);
  };
  return owner;
}

Trainers::Events EdgeService::trainer_events() {
  Trainers::Events events;
  events.workers_changed = [this](std::size_t count) {
    site_.report.workers(count);
    reporter_.changed();
  };
  events.followed = [this](RunId run) { on_followed(run); };
  events.working_changed = [this](bool working) {
    site_.report.working(working);
    reporter_.changed();
  };
  events.started = [this](RunId run) { news_.ends().tasks_out(run); };
  events.ready = [this](const TrainJob& job, std::vector<TrainedPart> parts, const round::ByteRanges& ready) {
    maker_.in_place(job, std::move(parts), ready);
  };
  events.unreadable = [this] { (void)site_.gpu_failed(); };  // then it is not the worker's fault
  return events;
}

UpdateMaker::Events EdgeService::maker_events() {
  UpdateMaker::Events events;
  events.reads = [this] { news_.ends().reads(); };
  events.read = [this] { news_.carry_out(news_.ends().read()); };
  events.fed = [this](WorkId work, std::shared_ptr<const Feed> feed) { on_fed(work, std::move(feed)); };
  events.no_room = [this](const Offer& offer, const Error& why) { wait_for_room(offer, why); };
  events.is_given_up = [this](WorkId work) { return machine_->is_given_up(work); };
  events.encoded = [this](WorkId work, store::PendingUpdate update) {
    trouble_.reset();
    const Pending pending = pending_of(submission_.hold(std::move(update)));
    carry_out(machine_->encoded(work, pending));
  };
  events.not_used = [this](const Offer& offer, const Error& why) {
    news_.not_used(offer.run, offer.round, why.message);
  };
  events.encode_failed = [this](WorkId work, const Error& error) { carry_out(machine_->encode_failed(work, error)); };
  events.folded = [this](WorkId work) { carry_out(machine_->folded(work)); };
  events.pass_encoded = [this](store::PendingUpdate update) {
    carry_out(machine_->pass_encoded(submission_.hold_pass(std::move(update))));
  };
  events.pass_failed = [this](const Error& error) { carry_out(machine_->pass_failed(error)); };
  return events;
}

Histories::Events EdgeService::history_events() {
  Histories::Events events;
  events.begins = [this] { carry_out(machine_->history_begins()); };
  events.load = [this] { return load(); };
  events.entered = [this](std::optional<Pending> pending, const round::Common& common) {
    orders_.in_history(histories_.current());
    news_.carry_out(news_.ends().history_entered());
    carry_out(machine_->history_entered(pending, common));
  };
  return events;
}

Result<std::optional<Pending>> EdgeService::load() {
  FLUVIAL_ASSIGN(const auto outcomes, site_.store->worker_outcomes());
  for (const auto& [run, workers] : outcomes) {
    for (const store::WorkerOutcome& known : workers) {
      site_.outcomes.set(run, known.worker, {known.last.round, known.last.outcome});
    }
  }
  return submission_.load();
}

Status EdgeService::open() {
  FLUVIAL_TRY(histories_.open());
  FLUVIAL_ASSIGN(const std::optional<Pending> found, load());
  FLUVIAL_ASSIGN(const auto outcomes, site_.store->worker_outcomes());
  std::set<RunId> runs;
  for (const auto& [run, workers] : outcomes) runs.insert(run);
  if (found) runs.insert(found->run);
  for (const RunId run : runs) news_.ends().known(run);
  machine_.emplace(found, std::move(runs));
  maker_.choose_reduction(settings_.reduction, static_cast<std::size_t>(settings_.workers));
  FLUVIAL_TRY(trainers_.open(trainer_events()));
  site_.spawn("uplink", uplink_.run());
  if (renewal_ != nullptr) site_.spawn("renewal", renewal_->run());
  site_.spawn("ask again", ask_again());
  return {};
}

net::Awaitable<void> EdgeService::ask_again() {
  const std::chrono::milliseconds interval(settings_.outcome_interval_ms);
  while (!site_.stopping) {
    const Status slept = co_await net::with_deadline(site_.stopped.wait(), interval);
    if (!slept.ok() && !site_.stopping && uplink_.is_up()) carry_out(machine_->ask_again());
  }
}

void EdgeService::stop() {
  site_.stop();
  if (renewal_ != nullptr) renewal_->stop();
  reporter_.parent_down();
  maker_.stop();
  submission_.stop_sending();
  models_.stop();
  vectors_.stop();
  if (common_models_ != nullptr) common_models_->forget(this);
  uplink_.stop();
  trainers_.stop();
  news_.stop();
  histories_.stop();
}

net::Awaitable<Status> EdgeService::granted(round::Lineage lineage, Epoch lease) {
  const Status taken = co_await histories_.granted(std::move(lineage), lease);
  if (taken.ok()) orders_.in_history(histories_.current());  // one that is refused changes nothing
  co_return taken;
}

std::uint64_t EdgeService::trust() const { return renewal_ == nullptr ? 0 : renewal_->trust(); }

void EdgeService::renewal_told(Duration validity, std::uint64_t trust) {
  if (renewal_ != nullptr) renewal_->told(validity, trust);
}

void EdgeService::certificate_renewed(const std::string& chain_pem, WallTime ends) {
  certificate_ends_ = ends;
  uplink_.tell_renewed(chain_pem);
  reporter_.changed();
}

void EdgeService::parent_up(const tree::Lease& lease) {
  if (site_.stopping) return;
  orders_.by(lease.coordinator_key);
  site_.report.parent_up();
  reporter_.parent_up(uplink_.takes_reports());
  site_.digest_kind = uplink_.digest_kind();
  set_ready_(true);
  models_.parent_up();
  vectors_.receiver().parent_up();
  carry_out(machine_->connected());
  if (common_models_ != nullptr) common_models_->can_fetch(this, lease.parent);
}

void EdgeService::parent_down(const Error& why) {
  set_ready_(false);
  reporter_.parent_down();
  submission_.stop_sending();
  models_.parent_down();
  vectors_.receiver().parent_down();
  if (common_models_ != nullptr) common_models_->cannot_fetch(this);
  site_.report.parent_down(why, site_.stopping);
}

SiteStatus EdgeService::status() const {
  SiteStatus status;
  status.name = self_.name;
  status.node = self_.node;
  status.connected = uplink_.is_up();
  if (uplink_.is_up()) {
    status.parent = uplink_.lease().parent_name;
    status.parent_address = net::to_string(uplink_.lease().address);
  }
  status.run = news_.ends().run();
  status.round = news_.ends().round();
  if (held_) status.model = held_->ref;
  status.update_bytes_sent = submission_.payload_bytes();
  status.doing = machine_->doing();
  if (machine_->pending()) status.pending_round = machine_->pending()->round;
  status.workers = trainers_.workers();
  status.gpus = site_.gpus ? site_.gpus->devices().size() : 0;
  return status;
}

round::NodeReport EdgeService::own_report() const {
  round::NodeReport report;
  report.node = self_.node;
  report.certificate_ends = certificate_ends_;
  report.workers = static_cast<std::uint32_t>(trainers_.workers());
  report.bytes_up = uplink_.counters().payload_bytes_out;
  report.bytes_down = uplink_.counters().payload_bytes_in;
  report.run = news_.ends().run();
  report.round = news_.ends().round();
  report.doing = machine_ ? round::doing_from_name(machine_->doing()) : round::Doing::kIdle;
  const auto sending = submission_.sending();
  if (report.doing == round::Doing::kWaiting) {
    report.doing = sending               ? round::Doing::kSending
                   : machine_->pending() ? round::Doing::kWaiting
                                         : round::Doing::kIdle;
  }
  if (report.doing == round::Doing::kSending) {
    report.done_bytes = sending->done_bytes;
    report.total_bytes = sending->total_bytes;
  } else if (report.doing == round::Doing::kFetching && fetching_) {
    report.total_bytes = models_.bytes_expected().value_or(fetching_->model.bytes);
    report.done_bytes = std::min(report.total_bytes, models_.bytes_here());
  } else if (report.doing == round::Doing::kTraining) {
    report.note = trainers_.holders();
    if (report.workers == 0) {
      report.note = "no worker attached";
    } else if (report.workers < settings_.workers) {
      report.note = fmt::format("{} of {} workers attached{}{}", report.workers, settings_.workers,
                                report.note.empty() ? "" : ", ", report.note);
    }
  }
  if (report.note.empty() && trouble_) report.note = trouble_->message;
  return report;
}

// ---- what the machine decides -----------------------------------------------------------------------------------

void EdgeService::carry_out(Effects effects) {
  if (site_.stopping) return;
  effects_.carry_out(std::move(effects), [this](const auto& decided) { apply(decided); });
  if (early_ && machine_->to_be_sent(early_->work) == nullptr) {
    early_.reset();
    submission_.drop_early();  // unless it is durable and sent on
  }
  reporter_.changed();
}

void EdgeService::on_fed(WorkId work, std::shared_ptr<const Feed> feed) {
  if (machine_->to_be_sent(work) == nullptr) return;
  if (early_ && early_->feed == feed) return submission_.fed();
  site_.report.feeding(feed->info());
  early_ = Early{work, std::move(feed)};
  send_early({});  // nobody has anything of it
}

// Also when its round, or a later one that it may enter, is opened anew: by another parent, under another lease, or by
// one that was told to stop wanting it. `received` is what that opening says: it is true once, for a parent drops what
// is not gone on with.
void EdgeService::send_early(const std::optional<Received>& received) {
  const Offer* offer = early_ ? machine_->to_be_sent(early_->work) : nullptr;
  if (offer != nullptr && !offer->counted) submission_.send_early(early_->feed, *offer, received);
}

void EdgeService::apply(const FetchModel& effect) {
  const round::ModelRef& model = effect.model;
  const bool is_new = !fetching_ || fetching_->model != model;
  if (is_new) fetching_ = Fetching{model, site_.runtime.clock.now()};
  site_.span_begun(model.run, round::round_from(model), round::SpanKind::kFetch);
  if (common_models_ == nullptr) return models_.want(model);
  if (is_new) models_.forget();  // another's bytes, that would come after this one's
  common_models_->want(this, common(model, uplink_.lease().parent),
                       {.can_fetch = [this] { return uplink_.is_up(); },
                        .fetch = [this, model] { models_.want(model); },
                        .here =
                            [this](HeldModel held) {
                              models_.forget();
                              on_model(std::move(held));
                            },
                        .flowing = [this] { return models_.flowing(); }});
}

void EdgeService::on_model(HeldModel model) {
  if (site_.stopping) return;
  held_ = std::move(model);
  site_.span_ended(held_->ref.run, round::round_from(held_->ref), round::SpanKind::kFetch);
  site_.report.model_held(held_->ref);
  if (fetching_ && fetching_->model == held_->ref) {
    site_.report.fetched(std::chrono::duration<double>(site_.runtime.clock.now() - fetching_->since).count());
  }
  fetching_.reset();
  news_.model_held(*held_);  // before the next task
  carry_out(machine_->model_ready(held_->ref));
}

void EdgeService::apply(const Train& effect) {
  FLUVIAL_CHECK(held_ && held_->ref == effect.offer.base, "to train from a model that is not here");
  if (!site_.free_bytes) return train(effect, *held_);
  site_.spawn("train", train_with_room(effect, *held_));
}

void EdgeService::wait_for_room(const Offer& offer, const Error& why) {
  trouble_ = Error{why.code, "waits for room on its disk: " + why.message};
  site_.report.waits_for_room(offer, why);
  reporter_.changed();
}

// What it trains must be written: its own values at least, into spare files or new ones.
net::Awaitable<void> EdgeService::train_with_room(Train effect, HeldModel base) {
  const std::uint64_t wanted = kRoomMarginBytes + base.schema.value_count() * sizeof(float);
  for (bool is_told = false;; is_told = true) {
    const std::uint64_t free = co_await site_.ask_free_bytes();
    if (site_.stopping) co_return;
    const Error full{
        Code::kResourceExhausted,
        fmt::format("{} bytes are free in {}, and an update needs {}: free some; nothing is trained before", free,
                    settings_.data_dir, wanted)};
    if (machine_->is_given_up(effect.work)) {
      if (is_told) news_.not_used(effect.offer.run, effect.offer.round, full.message);
      carry_out(machine_->train_failed(effect.work, full));
      co_return;
    }
    if (free >= wanted) break;
    if (!is_told) wait_for_room(effect.offer, full);
    if (!co_await site_.pause_for_room()) co_return;
  }
  train(effect, std::move(base));
}

void EdgeService::train(const Train& effect, HeldModel base) {
  const Offer& offer = effect.offer;
  if (const std::optional<Error> forbidden = owner_.objection(offer)) {  // since it was offered, its hours have ended
    return carry_out(machine_->train_failed(effect.work, *forbidden));
  }
  trouble_.reset();
  site_.span_begun(offer.run, offer.round, round::SpanKind::kTrain);
  site_.report.training(offer);
  trainers_.train({offer.run, offer.round, offer.plan, std::move(base), offer.weight_max},
                  [this, effect, begun = site_.runtime.clock.now()](Result<Trained> trained) {
                    on_trained(effect, begun, std::move(trained));
                  });
}

void EdgeService::on_trained(const Train& effect, TimePoint begun, Result<Trained> trained) {
  const Offer& offer = effect.offer;
  site_.span_ended(offer.run, offer.round, round::SpanKind::kTrain);
  if (!trained.ok()) {
    if (trained.error().code != Code::kCancelled) site_.report.train_failed(offer, trained.error());
    // Else the workers know: it is what one of them said, or that there are too few.
    const bool is_too_heavy = trained.error().code == Code::kPermissionDenied;
    if (is_too_heavy || trained.error().code == Code::kInvalidArgument) {
      news_.not_used(offer.run, offer.round, trained.error().message, is_too_heavy ? offer.weight_max : 0);
    }
    maker_.drop_early();
    news_.carry_out(news_.ends().train_failed());
    carry_out(machine_->train_failed(effect.work, trained.error()));
    return;
  }
  const double seconds = std::chrono::duration<double>(site_.runtime.clock.now() - begun).count();
  site_.report.trained(offer, trained->parts.size(), trained->weight, seconds);
  news_.ends().trained();
  site_.outcomes.used(offer.run, offer.round, trained->workers());
  maker_.take(std::move(*trained));
  carry_out(machine_->trained(effect.work));
}

void EdgeService::apply(const AskRun& effect) { uplink_.post(transfer::run_query(effect.run, self_.node)); }

void EdgeService::apply(const DeclineRound& effect) {
  trouble_ = effect.error;
  uplink_.post(wire::to_envelope(round::Decline{effect.run, effect.round, effect.attempt, {self_.node, effect.error}}));
}

void EdgeService::apply(const CompleteRun& effect) {
  if (!site_.gpu_failed()) site_.spawn("run over", complete_run(effect.run));
}

// What is unspent stays until another run begins: that one may continue it.
net::Awaitable<void> EdgeService::complete_run(RunId run) {
  const Result<store::ResidualInfo> unspent = co_await site_.runtime.pool.run([this, run] {
    if (site_.gpus) site_.gpus->release();
    return site_.store->residual(run);
  });
  site_.outcomes.forget(run);
  site_.report.run_complete(run, unspent);
}

}  // namespace fluvial::edge
