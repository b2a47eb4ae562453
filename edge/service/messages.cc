// What the parent sends.
#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <utility>

#include "core/transfer/outcome.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "edge/service/service.h"

namespace fluvial::edge {

net::Awaitable<Status> EdgeService::from_parent(net::Frame frame) {
  if (stopping_) co_return Status{};
  v1::Envelope& message = frame.header;
  switch (message.body_case()) {
    case v1::Envelope::kModelBegin: co_return co_await fetch_.begin(std::move(*message.mutable_model_begin()));
    case v1::Envelope::kModelChunk: co_return fetch_.chunk(message.model_chunk(), frame.payload.span());
    case v1::Envelope::kRoundOpen: co_return on_round_open(message.round_open());
    case v1::Envelope::kRoundCommit: co_return on_round_commit(message.round_commit());
    case v1::Envelope::kRunState: co_return on_run_state(message.run_state());
    case v1::Envelope::kReceipt: co_return on_receipt(message.receipt());
    case v1::Envelope::kOutcomeReply: co_return on_outcome_reply(message.outcome_reply());
    default: co_return Error{Code::kFailedPrecondition, "a message that no parent sends to a site"};
  }
}

Status EdgeService::on_round_open(const v1::RoundOpen& message) {
  FLUVIAL_ASSIGN(wire::Opening opening, wire::from_proto(message));
  const auto own = std::ranges::find(opening.participants, self_.node, &round::Participant::site);
  if (own == opening.participants.end()) return {};
  if (opening.run != run_) tell_ended();  // of the run before, before a task of this one
  run_ = opening.run;
  run_name_ = opening.plan.name;
  names_[opening.run] = opening.plan.name;
  if (opening.round > RoundId(1)) note_commit(opening.run, RoundId(opening.round.value() - 1), opening.base);
  round_ = opening.round;
  round_gauge_.set(static_cast<double>(round_.value()));
  Offer offer;
  offer.run = opening.run;
  offer.round = opening.round;
  offer.attempt = opening.attempt;
  offer.plan = std::move(opening.plan);
  offer.base = opening.base;
  offer.lease = own->lease;
  offer.weight_max = own->weight_max;
  offer.counted = std::ranges::find(opening.counted, self_.node) != opening.counted.end();
  if (opening.received) {
    offer.received = {opening.received->incarnation, opening.received->number, opening.received->chunks};
  }
  log_of(offer.run, offer.round)
      .info("round open",
            {{"attempt", opening.attempt}, {"model_version", offer.base.version}, {"counted", offer.counted}});
  offer.continues = std::move(opening.continues);
  carry_out(machine_->offered(std::move(offer)));
  return {};
}

Status EdgeService::on_round_commit(const v1::RoundCommit& message) {
  FLUVIAL_ASSIGN(const wire::Commit commit, wire::from_proto(message));
  round_ = commit.run == run_ ? std::max(round_, commit.round) : commit.round;
  if (commit.run != run_) {
    tell_ended();
    run_name_.clear();
  }
  run_ = commit.run;
  round_gauge_.set(static_cast<double>(round_.value()));
  const Verdict verdict = verdict_of(self_.node, commit.contributors, commit.refusals, commit.late);
  log_of(commit.run, commit.round)
      .info("round committed",
            {{"model_version", commit.model.version}, {"counted", verdict.counted.has_value()}, {"last", commit.last}});
  note_commit(commit.run, commit.round, commit.model);
  carry_out(machine_->committed(commit.run, commit.round, verdict, commit.model));
  if (commit.last) note_end(commit.run, "done");
  return {};
}

Status EdgeService::on_run_state(const v1::RunState& message) {
  runtime_.log.info("run " + wire::printable(message.state()),
                    {{"run", message.run()}, {"reason", wire::printable(message.reason())}});
  const RunId run(message.run());
  if (transfer::ends_run(message.state())) {
    note_end(run, message.state());
  } else {
    machine_->run_goes_on(run);
  }
  return {};
}

Status EdgeService::on_receipt(const v1::Receipt& message) {
  if (message.site() != site()) return Error{Code::kFailedPrecondition, "a receipt for another site"};
  const Status verdict = wire::status_from_proto(message.code(), message.message());
  const telemetry::Logger log = log_of(RunId(message.run()), RoundId(message.round()));
  if (verdict.ok()) {
    log.debug("update accepted");
    return {};
  }
  log.warn("update refused by the parent",
           {{"code", code_name(verdict.error().code)}, {"reason", verdict.error().message}});
  // A stale one may be of an earlier lease, while the update is on its way under the new one.
  if (verdict.error().code != Code::kStale) upload_.refused(RunId(message.run()), RoundId(message.round()));
  return {};
}

Status EdgeService::on_outcome_reply(const v1::OutcomeReply& message) {
  if (message.site() != site()) return Error{Code::kFailedPrecondition, "an outcome for another site"};
  const RunId run(message.run());
  if (message.round() == 0) {  // it is about the run alone
    machine_->run_goes_on(run);
    return {};
  }
  FLUVIAL_ASSIGN(const Digest digest, wire::digest_from_proto(message.sha256()));
  Outcome outcome = Outcome::kPending;
  switch (message.outcome()) {
    case v1::OutcomeReply::OUTCOME_PENDING: outcome = Outcome::kPending; break;
    case v1::OutcomeReply::OUTCOME_COUNTED: outcome = Outcome::kCounted; break;
    case v1::OutcomeReply::OUTCOME_LATE: outcome = Outcome::kLate; break;
    case v1::OutcomeReply::OUTCOME_REFUSED: outcome = Outcome::kRefused; break;
    default: return Error{Code::kInvalidArgument, "an outcome that nobody knows"};
  }
  const Pending about{run, RoundId(message.round()), digest};
  log_of(about.run, about.round).info("outcome told", {{"outcome", outcome_name(outcome)}});
  carry_out(machine_->answered(about, outcome));
  return {};
}

}  // namespace fluvial::edge
