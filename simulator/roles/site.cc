#include "simulator/roles/site.h"

#include <algorithm>
#include <chrono>
#include <utility>

#include "core/digest/sha256.h"
#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::simulator {

SiteRole::SiteRole(Cast& cast, HostId host)
    : cast_(cast),
      host_(host),
      malice_(cast, host),
      rng_(cast.world().chance().stream("site", (std::uint64_t{host.value()} << 32) ^ cast.world().starts(host))) {}

void SiteRole::start() {
  const Status opened = open();
  if (is_dead()) return;
  if (!opened.ok()) {  // the process ends with a message; whoever supervises it starts it again
    const Code code = opened.error().code;
    if (code != Code::kUnavailable && code != Code::kResourceExhausted) {  // no disk's error: what it left is not whole
      cast_.world().violate("nothing_lost", cast_.identity(host_).name + ": " + opened.error().to_string());
    }
    cast_.world().kill_for(host_, Death::kProcess, std::chrono::seconds(1));
    return;
  }
  uplink_->start();
}

Status SiteRole::open() {
  std::optional<edge::Pending> found;
  Incarnation incarnation(cast_.world().starts(host_));
  if (!cast_.sized()) {
    FLUVIAL_ASSIGN(store_, store::SiteStore::open(cast_.tamper().site_files(host_, cast_.world().disk(host_).files()),
                                                  "state", cast_.enrolled_before(host_)));
    incarnation = store_->incarnation();
    FLUVIAL_ASSIGN(lineage_, store_->lineage());
    FLUVIAL_ASSIGN(const round::Standing standing, store_->standing());
    heard_ = standing.epoch;
    cast_.checks().sites().in_history(self(), standing.history);
    FLUVIAL_ASSIGN(found, load());
    look();
  }
  cast_.checks().incarnation_began(host_, incarnation);
  machine_.emplace(found);
  uplink_ = std::make_unique<ChildEnd>(cast_, host_, incarnation, static_cast<ChildOwner&>(*this));
  ask_again();
  return {};
}

void SiteRole::ask_again() {
  cast_.world().after(host_, cast_.scenario().federation.outcome_interval, [this] {
    if (uplink_->is_up()) carry_out(machine_->ask_again());
    ask_again();
  });
}

// ---- the process' events ------------------------------------------------------------------------------------------

void SiteRole::connected(SessionId session) {
  if (uplink_->owns(session)) uplink_->connected();
}
void SiteRole::received(SessionId session, Frame frame) {
  if (uplink_->owns(session)) uplink_->received(std::move(frame));
}
void SiteRole::closed(SessionId session, const Error& why) {
  if (uplink_->owns(session)) uplink_->closed(why);
}
void SiteRole::writable(SessionId session) {
  if (uplink_->owns(session)) pump();
}

void SiteRole::parent_up(const ParentLease&) {
  model_promised_ = false;
  request_model();
  carry_out(machine_->connected());
}

void SiteRole::parent_down(const Error&) {
  uploading_.reset();
  flowing_ = false;
}

// ---- histories: as edge/service/histories.cc ------------------------------------------------------------------------

Result<std::optional<edge::Pending>> SiteRole::load() {
  FLUVIAL_ASSIGN(const std::vector<store::PendingInfo> unresolved, store_->all_pending());
  pending_.reset();
  if (unresolved.empty()) return std::optional<edge::Pending>();
  const store::PendingInfo& info = unresolved.back();
  FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> update, store_->pending(info.start.run));
  FLUVIAL_CHECK(update, "a submission that is listed but not there");
  pending_ = std::make_shared<const Submission>(Submission{info, std::move(*update), {}});
  return std::optional(pending_of(info));
}

Result<round::Standing> SiteRole::standing() {
  if (cast_.sized()) return round::Standing();
  return store_->standing();
}

void SiteRole::granted(const round::Lineage& lineage, Epoch lease, std::function<void(const Status&)> done) {
  if (cast_.sized()) return done({});
  if (round::current_of(lineage) == round::current_of(lineage_)) {
    if (lease <= heard_) return done({});
    const auto kept = store_->enter(lineage, lease);
    if (is_dead()) return;
    if (!kept.ok()) return done(kept.error());
    heard_ = lease;
    cast_.world().after_disk(host_, [done = std::move(done)] { done({}); });
    return;
  }
  if (round::began_of(lineage) <= heard_) return done(round::older_history(lineage, heard_));
  entering_ = Entering{lineage, lease, std::move(done)};
  resolve_backoff_.emplace(BackoffSettings(), Rng(lease.value()));
  carry_out(machine_->history_begins());
}

void SiteRole::apply(const edge::EnterHistory&) { enter_history(); }

void SiteRole::enter_history() {
  if (dies("enter history")) return;
  const store::ResidualBounds bounds = pending_ ? pending_->info.start.bounds : store::ResidualBounds();
  cast_.checks().sites().entering(self(), round::current_of(entering_->lineage),
                                  round::Common(lineage_, entering_->lineage),
                                  {bounds.norm_max, bounds.age_max_rounds});
  const auto aside = store_->enter(entering_->lineage, entering_->lease);
  if (is_dead()) return;
  if (!aside.ok()) {
    if (store_failed()) return;
    cast_.world().after(host_, resolve_backoff_->next(), [this] { enter_history(); });
    return;
  }
  cast_.checks().sites().in_history(self(), round::current_of(entering_->lineage));
  look();
  if (dies("history entered")) return;
  cast_.world().after_disk(host_, [this] {
    const Result<std::optional<edge::Pending>> pending = load();
    if (is_dead()) return;
    if (!pending.ok()) {
      cast_.world().after(host_, resolve_backoff_->next(), [this] { enter_history(); });
      return;
    }
    const Entering entered = *std::exchange(entering_, std::nullopt);
    const round::Common common(lineage_, entered.lineage);
    lineage_ = entered.lineage;
    heard_ = std::max(entered.lease, round::began_of(lineage_));
    carry_out(machine_->history_entered(*pending, common));
    if (!is_dead()) entered.done({});
  });
}

// ---- what the parent sends ----------------------------------------------------------------------------------------

Status SiteRole::from_parent(Frame frame) {
  const v1::Envelope& message = frame.header;
  if (dies("from parent")) return {};
  switch (message.body_case()) {
    case v1::Envelope::kModelBegin: return on_model_begin(message.model_begin());
    case v1::Envelope::kModelChunk: return on_model_chunk(message.model_chunk(), frame.payload);
    case v1::Envelope::kRoundOpen: return on_round_open(message.round_open());
    case v1::Envelope::kRoundCommit: return on_round_commit(message.round_commit());
    case v1::Envelope::kRunState: return on_run_state(message.run_state());
    case v1::Envelope::kReceipt: return on_receipt(message.receipt());
    case v1::Envelope::kOutcomeReply: return on_outcome_reply(message.outcome_reply());
    default: return Error{Code::kFailedPrecondition, "a message that no parent sends to a site"};
  }
}

Status SiteRole::on_round_open(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  const auto own = std::ranges::find(opening.participants, self(), &round::Participant::site);
  if (own == opening.participants.end()) return {};
  edge::Offer offer;
  offer.run = opening.run;
  offer.round = opening.round;
  offer.attempt = opening.attempt;
  offer.plan = std::move(opening.plan);
  offer.base = opening.base;
  offer.lease = own->lease;
  offer.weight_max = own->weight_max;
  offer.counted = std::ranges::find(opening.counted, self()) != opening.counted.end();
  offer.received = opening.received;
  offer.continues = std::move(opening.continues);
  carry_out(machine_->offered(std::move(offer)));
  return {};
}

Status SiteRole::on_round_commit(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  edge::Verdict verdict = edge::verdict_of(self(), commit.contributors, commit.refusals, commit.late);
  cast_.tamper().told(&verdict);
  carry_out(machine_->committed(commit.run, commit.round, verdict, commit.model));
  if (commit.last) carry_out(machine_->run_over(commit.run));
  return {};
}

Status SiteRole::on_receipt(const v1::Receipt& message) {
  if (message.site() != self().value()) return Error{Code::kFailedPrecondition, "a receipt for another site"};
  const Status verdict = wire::status_from_proto(message.code(), message.message());
  if (verdict.ok()) {
    if (cast_.tamper().counts_on_ack() && pending_ && pending_->info.start.round.value() == message.round()) {
      const store::PendingInfo& info = pending_->info;
      carry_out(machine_->answered(pending_of(info), round::Outcome::kCounted));
    }
    return {};
  }
  // A stale one may be of an earlier lease, while the update is on its way under the new one.
  if (verdict.error().code == Code::kStale) return {};
  if (uploading_ && uploading_->what->info.start.run.value() == message.run() &&
      uploading_->what->info.start.round.value() == message.round()) {
    uploading_->refused = true;  // the rest would be thrown away; the trailer says whether it contradicts itself
  }
  return {};
}

Status SiteRole::on_run_state(const v1::RunState& message) {
  const RunId run(message.run());
  if (transfer::ends_run(message.state())) {
    carry_out(machine_->run_over(run));
  } else {
    machine_->run_goes_on(run);
  }
  return {};
}

Status SiteRole::on_outcome_reply(const v1::OutcomeReply& message) {
  if (message.site() != self().value()) return Error{Code::kFailedPrecondition, "an outcome for another site"};
  const RunId run(message.run());
  if (message.round() == 0) {  // it is about the run alone
    machine_->run_goes_on(run);
    return {};
  }
  FLUVIAL_ASSIGN(const Digest digest, wire::digest_from_proto(message.sha256()));
  FLUVIAL_ASSIGN(round::Outcome outcome, wire::from_proto(message.outcome()));
  cast_.tamper().told(&outcome);
  edge::Pending about;
  about.run = run;
  about.round = RoundId(message.round());
  about.digest = digest;
  carry_out(machine_->answered(about, outcome));
  return {};
}

// ---- the model: edge/service/model_fetch.cc -----------------------------------------------------------------------

void SiteRole::apply(const edge::FetchModel& effect) {
  if (!fetching_ || fetching_->ref() != effect.model) {
    fetching_ = std::make_shared<ModelSlot>(effect.model);
    flowing_ = false;
    model_promised_ = false;
  }
  if (std::exchange(model_promised_, true)) return;  // on its way: asked again, it would be sent once more
  if (!flowing_) request_model();                    // the parent names it: it has it, or gets it
}

void SiteRole::request_model() {
  if (!fetching_ || fetching_->complete()) return;
  flowing_ = false;
  v1::Envelope message;
  *message.mutable_model_request()->mutable_model() = wire::to_proto(fetching_->ref());
  message.mutable_model_request()->set_offset(fetching_->available());
  uplink_->post(message);
}

Status SiteRole::on_model_begin(const v1::ModelBegin& message) {
  FLUVIAL_ASSIGN(const round::ModelRef ref, wire::from_proto(message.model()));
  if (!fetching_ || fetching_->ref() != ref || message.offset() != fetching_->available()) return {};  // replaced
  FLUVIAL_ASSIGN(round::Schema schema, wire::from_proto(message.schema()));
  FLUVIAL_TRY(fetching_->begin(std::move(schema)));
  flowing_ = true;
  return {};
}

Status SiteRole::on_model_chunk(const v1::ModelChunk& message, const Payload& payload) {
  if (!fetching_ || !flowing_ || message.run() != fetching_->ref().run.value() ||
      message.version() != fetching_->ref().version.value()) {
    return {};
  }
  if (message.offset() != fetching_->available()) return Error{Code::kDataLoss, "model bytes out of place"};
  FLUVIAL_TRY(fetching_->append(payload.bytes.bytes));
  if (!fetching_->complete()) return {};
  flowing_ = false;
  cast_.world().after(host_, std::chrono::milliseconds(1), [this, slot = fetching_] {
    if (fetching_ == slot) model_held();
  });
  return {};
}

void SiteRole::model_held() {
  const std::shared_ptr<ModelSlot> slot = std::exchange(fetching_, nullptr);
  if (sha256(slot->bytes()) != slot->ref().digest) {
    cast_.world().violate("model_chain", "a site was given a model that does not have its digest");
    return;
  }
  held_ = slot;
  carry_out(machine_->model_ready(slot->ref()));
}

}  // namespace fluvial::simulator
