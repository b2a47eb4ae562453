#include "simulator/roles/planned_site.h"

#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <utility>

#include "core/transfer/outcome.h"
#include "core/transfer/outgoing.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "edge/service/offer.h"
#include "simulator/roles/trainers.h"

namespace fluvial::simulator {
namespace {

constexpr Duration kTakeUp = std::chrono::milliseconds(1);  // a model that has come in whole

tree::UplinkOptions uplink_options(Cast& cast, HostId host) {
  tree::UplinkOptions options;
  options.coordinator = Cast::host_port(kRoot);
  options.incarnation = Incarnation(cast.world().starts(host));
  options.software = "fluvial simulate";
  options.jitter_seed =
      (std::uint64_t{host.value()} << 32) ^ options.incarnation.value() ^ cast.world().chance().seed();
  options.protocols = cast.protocols(host);
  return options;
}

}  // namespace

PlannedSite::PlannedSite(Cast& cast, HostId host)
    : Node(cast.world(), host, Role::kSite, cast.identities(), cast.work_costs(), &cast.site_metrics()),
      cast_(cast),
      malice_(cast, host),
      rng_(cast.world().chance().stream("site", (std::uint64_t{host.value()} << 32) ^ cast.world().starts(host))),
      machine_(std::nullopt),
      uplink_(runtime(), *this, uplink_options(cast, host), dial([this](const net::HostPort& address) {
                const HostId there = cast_.host_at(net::to_string(address));
                return Answer{there, there};
              })) {}

PlannedSite::~PlannedSite() { take_down(); }

void PlannedSite::start() {
  cast_.checks().incarnation_began(host(), uplink_.incarnation());
  set_outgoing([this](SessionId session, v1::Envelope& message, SharedBytes& payload) {
    return malice_.says(session, message, payload, submission_ ? &submission_->info : nullptr);
  });
  spawn("uplink", uplink_.run());
  ask_again();
}

void PlannedSite::ask_again() {
  later(cast_.scenario().federation.outcome_interval, [this] {
    if (uplink_.is_up()) carry_out(machine_.ask_again());
    ask_again();
  });
}

// ---- the parent ---------------------------------------------------------------------------------------------------

net::Awaitable<void> PlannedSite::serve(std::shared_ptr<net::Session>) { co_return; }  // nobody connects to a site

net::Awaitable<Result<round::Standing>> PlannedSite::standing() { co_return round::Standing(); }

net::Awaitable<Status> PlannedSite::granted(round::Lineage, Epoch) { co_return Status{}; }

void PlannedSite::parent_up(const tree::Lease&) {
  if (fetch_) fetch_->promised = false;
  request_model();
  carry_out(machine_.connected());
}

void PlannedSite::parent_down(const Error&) {
  upload_.reset();
  if (fetch_) fetch_->flowing = false;
}

net::Awaitable<Status> PlannedSite::from_parent(net::Frame frame) {
  co_return take(frame.header, frame.payload.size());
}

Status PlannedSite::take(const v1::Envelope& message, std::uint64_t payload_bytes) {
  switch (message.body_case()) {
    case v1::Envelope::kModelBegin: return on_model_begin(message.model_begin());
    case v1::Envelope::kModelChunk: return on_model_chunk(message.model_chunk(), payload_bytes);
    case v1::Envelope::kModelAhead: return on_model_ahead(message.model_ahead());
    case v1::Envelope::kRoundOpen: return on_round_open(message.round_open());
    case v1::Envelope::kRoundCommit: return on_round_commit(message.round_commit());
    case v1::Envelope::kOutcomeReply: return on_outcome_reply(message.outcome_reply());
    case v1::Envelope::kReceipt: return {};
    case v1::Envelope::kRunState: break;
    default: return Error{Code::kFailedPrecondition, "a message that no parent sends to a site"};
  }
  const RunId run(message.run_state().run());
  if (transfer::ends_run(message.run_state().state())) {
    carry_out(machine_.run_over(run));
  } else {
    machine_.run_goes_on(run);
  }
  return {};
}

Status PlannedSite::on_round_open(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  std::optional<edge::Offer> offer = edge::offer_of(std::move(opening), self());
  if (offer) carry_out(machine_.offered(std::move(*offer)));
  return {};
}

Status PlannedSite::on_round_commit(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  const edge::Verdict verdict = edge::verdict_of(self(), commit.contributors, commit.refusals, commit.late);
  carry_out(machine_.committed(commit.run, commit.round, verdict, commit.model));
  if (commit.last) carry_out(machine_.run_over(commit.run));
  return {};
}

Status PlannedSite::on_outcome_reply(const v1::OutcomeReply& message) {
  const RunId run(message.run());
  if (message.round() == 0) {  // it is only about the run
    machine_.run_goes_on(run);
    return {};
  }
  FLUVIAL_ASSIGN(const Digest digest, wire::digest_from_proto(message.sha256()));
  FLUVIAL_ASSIGN(const round::Outcome outcome, wire::from_proto(message.outcome()));
  carry_out(machine_.answered({run, RoundId(message.round()), digest, {}, 0}, outcome));
  return {};
}

// ---- the model ----------------------------------------------------------------------------------------------------

void PlannedSite::apply(const edge::FetchModel& effect) {
  if (!fetch_ || !fetch_->is_of(effect.model)) fetch_ = Fetch{.ref = effect.model};
  fetch_->ref = effect.model;
  if (!std::exchange(fetch_->is_named, true) && fetch_->is_whole()) return take_up();
  if (std::exchange(fetch_->promised, true)) return;  // on its way: asking again would send it once more
  if (!fetch_->flowing) request_model();
}

// Of what its commit will name: this site believes it.
Status PlannedSite::on_model_ahead(const v1::ModelAhead& message) {
  FLUVIAL_ASSIGN(const round::ModelRef unnamed, wire::from_proto(message.model()));
  if (fetch_ || !held_ || !round::follows(unnamed, *held_)) return {};
  fetch_ = Fetch{.ref = unnamed, .is_named = false, .promised = true};
  request_model();
  return {};
}

void PlannedSite::request_model() {
  if (!fetch_ || fetch_->is_whole()) return;
  fetch_->flowing = false;
  v1::Envelope message;
  *message.mutable_model_request()->mutable_model() = wire::to_proto(fetch_->ref);
  message.mutable_model_request()->set_offset(fetch_->received);
  uplink_.post(std::move(message));
}

Status PlannedSite::on_model_begin(const v1::ModelBegin& message) {
  FLUVIAL_ASSIGN(const round::ModelRef ref, wire::from_proto(message.model()));
  if (fetch_ && fetch_->is_of(ref) && message.offset() == fetch_->received) fetch_->flowing = true;
  return {};
}

Status PlannedSite::on_model_chunk(const v1::ModelChunk& message, std::uint64_t payload_bytes) {
  if (!fetch_ || !fetch_->flowing || message.version() != fetch_->ref.version.value()) return {};
  if (message.offset() != fetch_->received) return Error{Code::kDataLoss, "model bytes out of place"};
  fetch_->received += payload_bytes;
  if (!fetch_->is_whole()) return {};
  fetch_->flowing = false;
  if (fetch_->is_named) take_up();
  return {};
}

void PlannedSite::take_up() {
  later(kTakeUp, [this, ref = fetch_->ref] {
    if (!fetch_ || fetch_->ref != ref) return;
    fetch_.reset();
    held_ = ref;
    carry_out(machine_.model_ready(ref));
  });
}

// ---- what the machine decides -------------------------------------------------------------------------------------

void PlannedSite::carry_out(edge::Effects effects) {
  effects_.carry_out(std::move(effects), [this](const auto& decided) { apply(decided); });
}

void PlannedSite::apply(const edge::Train& effect) {
  later(training_time(cast_, host(), rng_), [this, work = effect.work] { carry_out(machine_.trained(work)); });
}

// The submission that this site would have made.
Result<PlannedSite::Submission> PlannedSite::make(const edge::Offer& offer) {
  FLUVIAL_ASSIGN(std::shared_ptr<const StandIn> made, cast_.stand_ins().of(self(), offer.round));
  Submission submission{made->info, std::move(made)};
  store::PendingInfo& info = submission.info;
  info.start.run = offer.run;
  info.start.round = offer.round;
  info.start.weight = static_cast<std::uint32_t>(std::min(cast_.weight_max(host()), offer.weight_max));
  info.start.base = offer.base.digest;
  info.incarnation = uplink_.incarnation();
  info.submission = ++submissions_;
  return submission;
}

void PlannedSite::apply(const edge::Encode& effect) {
  const Duration taken = world().compute(cast_.time_for_values(cast_.scenario().compute.encode_ns));
  later(taken, [this, work = effect.work, made = make(effect.offer)]() mutable {
    if (!made.ok()) return carry_out(machine_.encode_failed(work, made.error()));
    submission_ = std::move(*made);
    const store::PendingInfo& info = submission_->info;
    carry_out(
        machine_.encoded(work, {info.start.run, info.start.round, info.digest, info.incarnation, info.submission}));
  });
}

void PlannedSite::apply(const edge::Fold& effect) {
  later(Duration(0), [this, work = effect.work] { carry_out(machine_.folded(work)); });
}

void PlannedSite::apply(const edge::Send& effect) {
  FLUVIAL_CHECK(submission_, "to send what is not there");
  if (!uplink_.is_up()) return;  // offered again after the next connect
  Upload upload{submission_->info.submission, effect.offer.lease, effect.offer.round, uplink_.session()};
  if (upload_ == upload) return;
  upload_ = upload;
  spawn("upload", send(*submission_, std::move(upload), effect.first_chunk));
}

net::Awaitable<void> PlannedSite::send(Submission submission, Upload upload, std::uint64_t first_chunk) {
  const StandIn& made = *submission.made;
  if (first_chunk > made.chunks.size()) first_chunk = 0;
  Status sent = co_await upload.session->send(
      {transfer::update_begin(submission.info, self(), upload.lease, first_chunk, upload.into), {}});
  for (std::uint64_t i = first_chunk; i < made.chunks.size(); ++i) {
    if (!sent.ok() || upload_ != upload) co_return;
    net::OutFrame frame;
    frame.header.mutable_update_chunk()->set_index(i);
    frame.payload = {submission.made, made.chunks[i].span()};
    sent = co_await upload.session->send(std::move(frame));
  }
  if (!sent.ok() || upload_ != upload) co_return;
  net::OutFrame end;
  end.header.mutable_update_end()->set_sha256(wire::digest_to_proto(submission.info.digest));
  end.payload = {submission.made, made.trailer.span()};
  sent = co_await upload.session->send(std::move(end));
  if (upload_ == upload) upload_.reset();
}

void PlannedSite::apply(const edge::Ask& effect) {
  uplink_.post(transfer::outcome_query(effect.pending.run, effect.pending.round, self(), effect.pending.digest));
}

void PlannedSite::apply(const edge::AskRun& effect) { uplink_.post(transfer::run_query(effect.run, self())); }

void PlannedSite::apply(const edge::Resolve& effect) {
  later(Duration(0), [this, pending = effect.pending] {
    submission_.reset();
    carry_out(machine_.resolved(pending));
  });
}

void PlannedSite::apply(const edge::DeclineRound& effect) {
  uplink_.post(wire::to_envelope(round::Decline{effect.run, effect.round, effect.attempt, {self(), effect.error}}));
}

}  // namespace fluvial::simulator
