// What the parent sends.
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/net/deadline.h"
#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "edge/service/offer.h"
#include "edge/service/service.h"

namespace fluvial::edge {

net::Awaitable<Status> EdgeService::from_parent(net::Frame frame) {
  if (site_.stopping) co_return Status{};
  v1::Envelope& message = frame.header;
  switch (message.body_case()) {
    case v1::Envelope::kModelBegin: {  // each passes over what is of the other
      tree::ModelReceiver& receiver = message.model_begin().part() == 0 ? models_ : vectors_.receiver();
      co_return co_await receiver.begin(std::move(*message.mutable_model_begin()));
    }
    case v1::Envelope::kModelChunk: {
      tree::ModelReceiver& receiver = message.model_chunk().part() == 0 ? models_ : vectors_.receiver();
      co_return receiver.chunk(message.model_chunk(), frame.payload.span());
    }
    case v1::Envelope::kModelAhead: co_return on_model_ahead(message.model_ahead());
    case v1::Envelope::kRoundOpen: co_return on_round_open(message.round_open());
    case v1::Envelope::kRoundCommit: co_return on_round_commit(message.round_commit());
    case v1::Envelope::kRunState: {  // a parent may not have workers told more than they read
      const Duration early = states_.take(site_.runtime.clock.now());
      if (early > Duration(0)) co_await net::sleep_for(early);
      co_return site_.stopping ? Status{} : on_run_state(message.run_state());
    }
    case v1::Envelope::kReceipt: co_return on_receipt(message.receipt());
    case v1::Envelope::kOutcomeReply: co_return on_outcome_reply(message.outcome_reply());
    default: co_return Error{Code::kFailedPrecondition, "a message that no parent sends to a site"};
  }
}

// One that follows on what is here, and no other: a parent may not have this node take memory as it likes.
Status EdgeService::on_model_ahead(const v1::ModelAhead& message) {
  FLUVIAL_ASSIGN(const round::ModelRef model, wire::from_proto(message.model()));
  const bool is_next = held_ && round::follows(model, held_->ref) && !machine_->is_over(model.run);
  if (common_models_ == nullptr && is_next && machine_->wants_newer()) models_.ahead(model);
  return {};
}

// To this site, or to the one that fetches for it.
std::optional<round::ModelRef> EdgeService::flowing() const {
  const std::optional<round::ModelRef> own = models_.flowing();
  return own || common_models_ == nullptr ? own : common_models_->flowing(this);
}

Status EdgeService::on_round_open(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  FLUVIAL_ASSIGN(const bool is_news, orders_.opened(opening));
  const wire::Order order = opening.order;
  models_.known(opening.base, orders_.tree_of(opening));
  if (held_ && held_->ref == opening.base) models_.forget_ahead(opening.run);  // what was made of it is given up
  std::optional<Offer> offer = is_news ? offer_of(std::move(opening), self_.node) : std::nullopt;
  if (!offer) return {};
  if (orders_.are_signed()) offer->cohort = cohort_of(*order);
  news_.carry_out(news_.ends().opened(offer->run, offer->plan.name, offer->round, offer->base));
  site_.report.round_opened(*offer);
  std::optional<Error> forbidden = owner_.objection(*offer);
  if (!forbidden) forbidden = lacks_passes(*offer);
  const std::optional<Received> received = offer->received;
  machine_->model_flows(flowing());
  carry_out(machine_->offered(std::move(*offer), forbidden));
  send_early(received);
  return {};
}

// As the coordinator signed it; where it signs nothing, as the parent says.
Result<Verdict> EdgeService::verdict_of(const wire::Commit& commit) const {
  if (!orders_.are_signed()) {
    return edge::verdict_of(self_.node, commit.contributors, commit.refusals, commit.late);
  }
  FLUVIAL_ASSIGN(const std::optional<wire::Decided> decided, orders_.outcome_of(self_.node, commit));
  Verdict verdict;
  if (!decided) return verdict;
  if (decided->outcome == Outcome::kCounted) verdict.counted = decided->digest;
  verdict.refused = decided->outcome == Outcome::kRefused;
  verdict.late = decided->outcome == Outcome::kLate;
  if (decided->own != RoundId()) verdict.refused_own = decided->own;
  if (verdict.refused) verdict.reason = reason_of(self_.node, commit.refusals);  // its words are not signed
  return verdict;
}

Status EdgeService::on_round_commit(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  FLUVIAL_TRY(orders_.committed(commit));
  FLUVIAL_ASSIGN(const Verdict verdict, verdict_of(commit));
  models_.known(commit.model, orders_.tree_of(commit));
  news_.carry_out(news_.ends().committed(commit.run, commit.round, commit.model));
  site_.report.round_committed(commit, verdict, news_.ends().round());
  reporter_.rounds_over(site_.spans.take_until(commit.run, commit.round, site_.runtime.clock.now()));
  if (verdict.refused) news_.refused(commit.run, verdict.refused_own.value_or(commit.round), verdict.reason);
  machine_->model_flows(flowing());
  carry_out(machine_->committed(commit.run, commit.round, verdict, commit.model));
  if (commit.last) note_end(commit.run, "done");
  return {};
}

Status EdgeService::on_run_state(const v1::RunState& message) {
  const RunId run(message.run());
  FLUVIAL_TRY(orders_.ended(message));
  if (!transfer::is_running(message.state())) models_.forget_ahead(run);
  site_.report.run_state(run, message.state(), message.reason());
  if (transfer::ends_run(message.state())) {
    note_end(run, message.state(), message.name());
  } else if (!machine_->is_over(run)) {  // else an older word than that
    machine_->run_active(run);
    news_.carry_out(news_.ends().active(run, message.name()));
  }
  return {};
}

// Told by its last commit, by the parent, or in answer to a question; the first of them counts.
void EdgeService::note_end(RunId run, std::string_view state, std::string_view name) {
  carry_out(machine_->run_over(run));
  news_.carry_out(news_.ends().ended(run, state, name));
}

// By a worker that attaches: the run may have ended while this agent was away, and did not ask this site.
void EdgeService::on_followed(RunId run) {
  if (news_.ends().knows(run)) return;
  news_.ends().known(run);
  carry_out(machine_->ask_run(run));
}

Status EdgeService::on_receipt(const v1::Receipt& message) {
  if (message.site() != self_.node.value()) return Error{Code::kFailedPrecondition, "a receipt for another site"};
  if (!submission_.is_about_last(message.pass())) return {};
  const Status verdict = wire::status_from_proto(message.code(), message.message());
  const RunId run(message.run());
  const RoundId round(message.round());
  site_.report.receipt(run, round, verdict);
  submission_.answered(run, round);
  if (verdict.ok()) machine_->taken(run);
  // A stale one may be of an earlier lease, while the update is on its way under the new one.
  if (!verdict.ok() && verdict.error().code != Code::kStale) submission_.refused(run, round);
  if (!verdict.ok() && round::drops_update(verdict.error().code)) {
    const std::optional<Pending>& sent = machine_->pending();  // into this round, perhaps from an earlier one
    news_.refused(run, sent && sent->run == run ? sent->round : round, verdict.error().message);
  }
  if (!verdict.ok() && verdict.error().code == Code::kStale) {
    submission_.turned_away(run, round);
    carry_out(machine_->not_taken(run, round));
  }
  if (!verdict.ok() && verdict.error().code == Code::kAlreadyExists) carry_out(machine_->turned_away(run, round));
  return {};
}

Status EdgeService::on_outcome_reply(const v1::OutcomeReply& message) {
  if (message.site() != self_.node.value()) return Error{Code::kFailedPrecondition, "an outcome for another site"};
  const RunId run(message.run());
  if (message.round() == 0) {  // it is about the run alone
    machine_->run_goes_on(run);
    return {};
  }
  FLUVIAL_ASSIGN(const Digest digest, wire::digest_from_proto(message.sha256()));
  FLUVIAL_ASSIGN(const Outcome outcome, wire::from_proto(message.outcome()));
  FLUVIAL_TRY(orders_.answered(message));
  const Pending about{run, RoundId(message.round()), digest};
  site_.report.outcome_told(about, outcome);
  if (outcome == Outcome::kRefused) news_.refused(run, about.round, "the coordinator has refused it");
  carry_out(machine_->answered(about, outcome));
  return {};
}

}  // namespace fluvial::edge
