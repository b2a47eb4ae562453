#include "coordinator/service/order_signer.h"

#include <utility>

#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"

namespace fluvial::coordinator {

wire::Order OrderSigner::sign(std::string_view kind, std::string body) const {
  const Result<Signature> signature = identity::sign(*key_, kind, as_byte_span(body));
  FLUVIAL_CHECK(signature.ok(), "the coordinator's key signs");
  auto order = std::make_shared<v1::Signed>();
  order->set_body(std::move(body));
  order->set_signature(wire::signature_to_proto(*signature));
  return order;
}

wire::Order OrderSigner::opening(const wire::Opening& opening,
                                 const std::vector<round::Participant>& participants) const {
  if (!key_) return nullptr;
  std::vector<SiteId> sites;
  for (const round::Participant& participant : participants) sites.push_back(participant.site);
  return sign(wire::kOpeningKind, wire::opening_body(opening, sites, history_));
}

wire::Order OrderSigner::commit(const round::CommitRecord& record, bool last, const Digest& master,
                                const std::optional<Digest>& tree) const {
  if (!key_) return nullptr;
  wire::Commit commit{record.run, record.round, record.attempt, record.model, {}, {}, last, {}};
  commit.model_tree = tree;
  const std::optional<Digest> another = master == record.model.digest ? std::nullopt : std::optional(master);
  return sign(wire::kCommitKind,
              wire::commit_body(commit, audit_head_ ? audit_head_() : std::string(), history_, another));
}

std::map<SiteId, wire::Order> OrderSigner::outcomes(const round::CommitRecord& record) const {
  std::map<SiteId, wire::Order> outcomes;
  if (!key_) return outcomes;
  const auto add = [&](SiteId site, round::Outcome outcome, std::optional<Digest> digest, RoundId own = {}) {
    outcomes[site] =
        sign(wire::kOutcomeKind, wire::outcome_body({record.run, record.round, site, outcome, digest, own}, history_));
  };
  for (const auto& [site, entry] : record.contributors.entries()) add(site, round::Outcome::kCounted, entry.digest);
  for (const round::Refusal& refusal : record.refusals) {
    const bool drops = round::drops_update(refusal.error.code);
    add(refusal.site, drops ? round::Outcome::kRefused : round::Outcome::kLate, std::nullopt, refusal.own);
  }
  for (const SiteId site : record.late) add(site, round::Outcome::kLate, std::nullopt);
  return outcomes;
}

wire::Order OrderSigner::run_state(const v1::RunState& state) const {
  if (!key_) return nullptr;
  return sign(wire::kRunStateKind, wire::run_state_body(state, epoch_, history_));
}

void OrderSigner::sign(std::vector<v1::Envelope>* answers) const {
  if (!key_) return;
  for (v1::Envelope& answer : *answers) {
    if (answer.has_run_state()) *answer.mutable_run_state()->mutable_order() = *run_state(answer.run_state());
    if (!answer.has_outcome_reply() || answer.outcome_reply().round() == 0) continue;
    v1::OutcomeReply& reply = *answer.mutable_outcome_reply();
    const Result<Digest> digest = wire::digest_from_proto(reply.sha256());
    const Result<round::Outcome> outcome = wire::from_proto(reply.outcome());
    FLUVIAL_CHECK(digest.ok() && outcome.ok(), "an answer of our own");
    const wire::Decided decided{RunId(reply.run()), RoundId(reply.round()), SiteId(reply.site()), *outcome, *digest};
    *reply.mutable_order() = *sign(wire::kOutcomeKind, wire::outcome_body(decided, history_));
  }
}

std::optional<store::SignedOrder> kept(const wire::Order& order) {
  if (!order) return std::nullopt;
  const Result<Signature> signature = wire::signature_from_proto(order->signature());
  FLUVIAL_CHECK(signature.ok(), "a signature of our own");
  return store::SignedOrder{order->body(), *signature};
}

}  // namespace fluvial::coordinator
