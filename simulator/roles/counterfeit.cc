#include "simulator/roles/counterfeit.h"

#include <utility>

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kLiesOnceIn = 6;  // messages of a kind that it could bend
constexpr std::uint64_t kFarAway = std::uint64_t{1} << 40;

}  // namespace

Counterfeit::Counterfeit(Cast& cast, HostId host)
    : cast_(cast), host_(host), rng_(cast.world().chance().stream("counterfeit", host.value())) {}

void Counterfeit::says(v1::Envelope* message) {
  if (!cast_.is_malicious(host_) || !cast_.world().faults_on()) return;
  const bool can_be_bent = message->has_round_open() || message->has_round_commit() || message->has_outcome_reply() ||
                           message->has_partial_begin();
  if (!can_be_bent || rng_.below(kLiesOnceIn) != 0) return;
  if (message->has_round_open()) bend(message->mutable_round_open());
  if (message->has_round_commit()) bend(message->mutable_round_commit());
  if (message->has_outcome_reply()) bend(message->mutable_outcome_reply());
  if (message->has_partial_begin()) bend(message->mutable_partial_begin());
}

void Counterfeit::bend(v1::RoundOpen* open) {
  const v1::RoundOpen honest = *open;
  switch (rng_.below(cast_.has_passes() ? 8 : 7)) {
    case 0: open->set_round(open->round() + kFarAway); break;
    case 1: open->mutable_plan()->set_local_steps(open->plan().local_steps() + 1); break;
    case 2: open->set_epoch(open->epoch() + kFarAway); break;
    case 3: (*open->mutable_base()->mutable_sha256())[0] ^= 1; break;
    case 4:
      open->mutable_plan()->set_local_steps(open->plan().local_steps() + 1);
      open->clear_order();
      break;
    case 5:  // what was true once: of an earlier round
      if (before_) *open = *before_;
      break;
    case 6:  // of an earlier attempt or pass of this round
      if (cast_.has_passes()) {
        if (earlier_) *open = *earlier_;
        break;
      }
      [[fallthrough]];
    default: {
      std::string& signature = *open->mutable_order()->mutable_signature();
      open->mutable_plan()->set_local_steps(open->plan().local_steps() + 1);
      if (!signature.empty()) signature[0] ^= 1;
    }
  }
  if (!before_ || before_->round() + 1 < honest.round()) before_ = honest;
  if (earlier_ && earlier_->round() == honest.round()) return;
  earlier_ = honest;
}

void Counterfeit::bend(v1::RoundCommit* commit) {
  switch (rng_.below(4)) {
    case 0: commit->set_round(commit->round() + kFarAway); break;
    case 1: (*commit->mutable_model()->mutable_sha256())[0] ^= 1; break;
    case 2: commit->set_last(!commit->last()); break;
    default:  // the work of whoever counted goes into another update once more
      for (const v1::Contributor& contributor : commit->contributors()) commit->add_late(contributor.site());
      commit->clear_contributors();
      for (v1::Signed& outcome : *commit->mutable_outcomes()) {
        v1::OutcomeStatement statement;
        if (!statement.ParseFromString(outcome.body())) continue;
        statement.set_outcome(v1::OutcomeReply::OUTCOME_LATE);
        outcome.set_body(statement.SerializeAsString());
      }
  }
}

void Counterfeit::bend(v1::OutcomeReply* reply) {
  if (reply->round() == 0) return;
  const bool is_late = reply->outcome() == v1::OutcomeReply::OUTCOME_LATE;
  reply->set_outcome(is_late ? v1::OutcomeReply::OUTCOME_COUNTED : v1::OutcomeReply::OUTCOME_LATE);
  if (rng_.below(2) == 0) reply->clear_order();
}

void Counterfeit::bend(v1::PartialBegin* begin) {
  if (begin->contributors_size() == 0) return;
  v1::Contributor& first = *begin->mutable_contributors(0);
  if (first.signature().empty()) return;  // of a site that signs nothing: it would be believed
  switch (rng_.below(4)) {
    case 0:  // lighter than it is, so that its parent may admit it; the probe would tell on any other part of the sum
      if (first.weight() > 1) first.set_weight(first.weight() - 1);
      first.set_probe(static_cast<std::int64_t>(first.weight() << begin->scale_bits()));
      break;
    case 1: (*first.mutable_sha256())[0] ^= 1; break;  // another update than the site's
    case 2: first.clear_signature(); break;
    default: first.set_submission(first.submission() + 1); break;
  }
}

}  // namespace fluvial::simulator
