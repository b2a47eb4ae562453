#include "edge/service/submission.h"

#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/identity/signature.h"
#include "core/transfer/outcome.h"
#include "core/transfer/outgoing.h"
#include "core/wire/mapping.h"
#include "core/wire/statements.h"
#include "edge/update/resolve.h"

namespace fluvial::edge {
namespace {

// What its parent will make of it.
round::Contribution contribution_of(const store::PendingInfo& info, SiteId site) {
  round::Contribution given;
  given.site = site;
  given.weight = info.start.weight;
  given.digest = info.digest;
  given.incarnation = info.incarnation;
  given.submission = info.submission;
  given.from = info.start.from;
  return given;
}

}  // namespace

Submission::Submission(SiteContext& site, tree::Uplink& uplink, std::uint64_t bytes_per_s, Events events)
    : site_(site),
      uplink_(uplink),
      events_(std::move(events)),
      upload_(site.runtime, site.tasks, UploadRate(bytes_per_s), upload_events()) {}

Upload::Events Submission::upload_events() {
  const auto start = [](const UploadItem& item) -> const store::PendingStart& { return item.info().start; };
  Upload::Events events;
  events.begun = [this, start](const UploadItem& item) {
    site_.span_begun(start(item).run, start(item).round, round::SpanKind::kSend);
    events_.sending();
  };
  events.ended = [this, start](const UploadItem& item) {
    site_.span_ended(start(item).run, start(item).round, round::SpanKind::kSend);
    events_.sending();
  };
  events.sent = [this](const UploadItem& item, double seconds) { on_sent(item, seconds); };
  events.sign = [this](const store::PendingInfo& info) { return signature_of(info); };
  return events;
}

// Its lease may change from one parent to the next, and is not signed.
Result<std::string> Submission::signature_of(const store::PendingInfo& info) const {
  if (!site_.key) return std::string();
  const round::Contribution given = contribution_of(info, site_.self);
  const std::string body = wire::contribution_body(info.start.run, info.start.round, info.start.base, given);
  FLUVIAL_ASSIGN(const Signature signature, identity::sign(*site_.key, wire::kContributionKind, as_byte_span(body)));
  return wire::signature_to_proto(signature);
}

Result<std::optional<Pending>> Submission::load() {
  FLUVIAL_ASSIGN(const std::vector<store::PendingInfo> unresolved, site_.store->all_pending());
  pending_.reset();
  pass_.reset();
  if (unresolved.empty()) return std::optional<Pending>();
  const store::PendingInfo& info = unresolved.back();  // there is one at most: nothing newer is encoded before
  FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> update, site_.store->pending(info.start.run));
  FLUVIAL_CHECK(update, "a submission that is listed but not there");
  site_.outcomes.used(info.start.run, info.start.round, info.start.workers);
  site_.report.found(hold(std::move(*update)));
  FLUVIAL_ASSIGN(std::optional<store::PendingUpdate> pass, site_.store->pending_pass(info.start.run));
  if (!pass) return std::optional(pending_of(info));
  site_.report.pass_found(pass->info());
  return std::optional(hold_pass(std::move(*pass)));
}

Pending Submission::hold_pass(store::PendingUpdate update) {
  pass_ = std::make_shared<const store::PendingUpdate>(std::move(update));
  Pending pending = pending_of(pass_->info());
  pending.first = {pending_->info().incarnation, pending_->info().submission};
  return pending;
}

const store::PendingInfo& Submission::hold(store::PendingUpdate update) {
  pending_ = std::make_shared<const store::PendingUpdate>(std::move(update));
  return pending_->info();
}

void Submission::send(const Send& effect) {
  const std::shared_ptr<const store::PendingUpdate>& update = effect.offer.pass_index() == 0 ? pending_ : pass_;
  FLUVIAL_CHECK(update, "to send what is not there");
  if (!uplink_.is_up()) return;  // offered again after the next connect
  if (!is_taken(update->info())) return decline(effect.offer);
  if (is_with_parent(effect.offer, update->info())) return;
  last_pass_ = effect.offer.pass_index();
  site_.report.sending(effect);
  upload_.send({update, site_.self, effect.offer.lease, effect.offer.round, uplink_.session(), effect.first_chunk,
                nullptr, effect.offer.late.has_value()});
}

// All of it has gone to this parent for a round before, and its receipt is on its way: by that it is taken, or sent
// once more.
bool Submission::is_with_parent(const Offer& offer, const store::PendingInfo& info) const {
  return unanswered_ && offer.attempt == AttemptId(1) && unanswered_->into < offer.round &&
         unanswered_->session == uplink_.session() && unanswered_->lease == offer.lease &&
         unanswered_->submission == info.submission;
}

void Submission::answered(RunId run, RoundId round) {
  if (unanswered_ && unanswered_->run == run && unanswered_->into == round) unanswered_.reset();
}

// So that the round need not wait for it. It stays pending, and is late unless another parent's sum holds it.
void Submission::decline(const Offer& offer) {
  const Error why{Code::kFailedPrecondition, "its parent is of a version that does not take the digest of its update"};
  uplink_.post(wire::to_envelope(round::Decline{offer.run, offer.round, offer.attempt, {site_.self, why}}));
}

// Its digest names it wherever it was sent before, so it keeps the one that it was encoded with.
bool Submission::is_taken(const store::PendingInfo& info) const {
  if (info.start.digest_kind == DigestKind::kStream || info.start.digest_kind == uplink_.digest_kind()) return true;
  site_.runtime.log.warn(
      "update not sent: the parent is of a version that does not take its digest; it is sent to another parent, or is "
      "late and goes into the next update",
      {{"run", info.start.run}, {"round", info.start.round}});
  return false;
}

void Submission::send_early(std::shared_ptr<const Feed> feed, const Offer& offer,
                            const std::optional<Received>& received) {
  const store::PendingInfo& info = feed->info();
  if (!uplink_.is_up() || !is_taken(info)) return;
  const std::uint64_t first_chunk =
      transfer::first_chunk(received, info.incarnation, info.submission, info.start.chunk_count);
  upload_.send({nullptr, site_.self, offer.lease, offer.round, uplink_.session(), first_chunk, std::move(feed),
                offer.late.has_value()});
}

void Submission::on_sent(const UploadItem& item, double seconds) {
  const store::PendingInfo& info = item.update->info();
  const bool again = std::exchange(sent_[info.start.from.pass], info.submission) == info.submission;
  site_.report.sent(info, again, seconds);
  unanswered_.reset();
  if (item.goes_over) unanswered_ = {info.start.run, item.into, info.submission, item.lease, item.session};
  for (auto* const held : {&pending_, &pass_}) {
    if (*held && (*held)->info().submission == info.submission) forget_memory(*held);
  }
}

// The parent has all of it, or will have: if it is sent once more, it is read.
void Submission::forget_memory(std::shared_ptr<const store::PendingUpdate>& held) {
  store::PendingUpdate on_disk = *held;
  on_disk.forget_memory();
  held = std::make_shared<const store::PendingUpdate>(std::move(on_disk));
}

void Submission::ask(const Ask& effect) {
  uplink_.post(transfer::outcome_query(effect.pending.run, effect.pending.round, site_.self, effect.pending.digest));
}

void Submission::resolve(const Resolve& effect) { site_.spawn("resolve", write(effect.pending, effect.outcome)); }

// Nothing goes on before it is on disk: a disk that fails is tried again.
net::Awaitable<void> Submission::write(Pending pending, Outcome outcome) {
  net::Backoff backoff(site_.runtime.backoff, Rng(pending.round.value()));
  for (;;) {
    site_.report.resolving((pass_ ? pass_ : pending_)->info(), outcome);
    const Result<store::Carried> carried = co_await site_.runtime.pool.run(
        [&] { return resolve_pending(*site_.store, pending.run, pending.round, outcome); });
    if (carried.ok()) {
      site_.outcomes.decided(pending.run, pending.round, outcome);
      site_.report.resolved(pending, outcome, site_.is_over(pending.run));
      site_.report.residual(pending.run, pending.round, *carried);
      break;
    }
    site_.report.not_written(pending, outcome, carried.error());
    if (site_.stopping || site_.store_failed()) co_return;
    const bool is_full = carried.error().code == Code::kResourceExhausted;
    const bool goes_on = is_full ? co_await site_.pause_for_room() : co_await site_.pause(backoff);
    if (!goes_on) co_return;
  }
  if (site_.stopping) co_return;
  pending_.reset();
  pass_.reset();
  events_.resolved(pending);
}

}  // namespace fluvial::edge
