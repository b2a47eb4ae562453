#include "core/tree/orders.h"

#include <string>

#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

Error unsigned_order(std::string_view what) {
  return {Code::kUnauthenticated, std::string(what) + " without the coordinator's signature"};
}

// A message that is not formed as it must be is no coordinator's either.
Error not_ours(const Error& why) { return {Code::kUnauthenticated, why.message}; }

}  // namespace

Status check_author(const identity::PublicKey& site, RunId run, RoundId round, const Digest& base,
                    const round::Contribution& contribution) {
  if (!contribution.signature) {
    return Error{Code::kUnauthenticated, "its contribution is without its signature"};
  }
  return site.verify(wire::kContributionKind, as_byte_span(wire::contribution_body(run, round, base, contribution)),
                     *contribution.signature);
}

void Orders::in_history(round::HistoryId history) {
  if (history != history_) newest_.clear();
  history_ = history;
}

Status Orders::check(std::string_view kind, const v1::Signed& order) const {
  const Result<Signature> signature = wire::signature_from_proto(order.signature());
  if (!signature.ok()) return not_ours(signature.error());
  return coordinator_.verify(kind, as_byte_span(order.body()), *signature);
}

Result<bool> Orders::opened(const wire::Opening& opening) {
  if (!are_signed()) return true;
  if (!opening.order) return unsigned_order("an opening");
  FLUVIAL_TRY(check(wire::kOpeningKind, *opening.order));
  FLUVIAL_TRY(wire::check_opening(opening.order->body(), opening, history_));
  const Newest now{opening.round, opening.epoch, opening.attempt, opening.pass ? opening.pass->index : 0};
  const auto [known, is_new] = newest_.try_emplace(opening.run, now);
  if (!is_new && now < known->second) return false;
  known->second = now;
  return true;
}

Status Orders::committed(const wire::Commit& commit) const {
  if (!are_signed()) return {};
  if (!commit.order) return unsigned_order("a commit");
  FLUVIAL_TRY(check(wire::kCommitKind, *commit.order));
  return wire::check_commit(commit.order->body(), commit, history_);
}

std::optional<Digest> Orders::tree_of(const wire::Opening& opening) const {
  return are_signed() ? wire::tree_of_opening(*opening.order) : std::nullopt;
}

std::optional<Digest> Orders::tree_of(const wire::Commit& commit) const {
  return are_signed() ? wire::tree_of_commit(*commit.order) : std::nullopt;
}

Result<wire::Decided> Orders::decided(SiteId site, RunId run, RoundId round, const v1::Signed& order) const {
  FLUVIAL_TRY(check(wire::kOutcomeKind, order));
  const Result<wire::Decided> decided = wire::decided_from(order.body(), history_);
  if (!decided.ok()) return not_ours(decided.error());
  if (decided->site == site && decided->run == run && decided->round == round) return *decided;
  return Error{Code::kUnauthenticated, "an outcome of another site or round than the coordinator signed"};
}

Result<std::optional<wire::Decided>> Orders::outcome_of(SiteId site, const wire::Commit& commit) const {
  const auto found = commit.outcomes.find(site);
  if (found == commit.outcomes.end()) return std::optional<wire::Decided>();
  FLUVIAL_ASSIGN(wire::Decided decided, this->decided(site, commit.run, commit.round, *found->second));
  // Of bytes a commit speaks only where they counted: an answer about other bytes is no word on the site's own.
  if (decided.digest && decided.outcome != round::Outcome::kCounted) {
    return Error{Code::kUnauthenticated, "an answer to a question in the place of a commit's outcome"};
  }
  return std::optional(std::move(decided));
}

Status Orders::answered(const v1::OutcomeReply& reply) const {
  if (!are_signed() || reply.round() == 0) return {};  // that a run goes on binds nobody
  if (!reply.has_order()) return unsigned_order("an outcome");
  FLUVIAL_ASSIGN(const wire::Decided decided,
                 this->decided(SiteId(reply.site()), RunId(reply.run()), RoundId(reply.round()), reply.order()));
  const bool same = decided.digest && wire::digest_to_proto(*decided.digest) == reply.sha256() &&
                    wire::to_proto(decided.outcome) == reply.outcome();
  return same ? Status{} : Status{Error{Code::kUnauthenticated, "an outcome that the coordinator did not sign"}};
}

Status Orders::ended(const v1::RunState& state) const {
  if (!are_signed()) return {};
  if (!state.has_order()) return unsigned_order("the end of a run");
  FLUVIAL_TRY(check(wire::kRunStateKind, state.order()));
  return wire::check_run_state(state.order().body(), state, history_);
}

}  // namespace fluvial::tree
