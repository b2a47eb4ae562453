#include "core/wire/record_mapping.h"

#include <algorithm>

#include "core/round/schema.h"
#include "core/wire/mapping.h"
#include "core/wire/opening_fields.h"
#include "core/wire/statements.h"

namespace fluvial::wire {

v1::ModelRef to_proto(const round::ModelRef& ref) {
  v1::ModelRef proto;
  proto.set_run(ref.run.value());
  proto.set_version(ref.version.value());
  proto.set_sha256(digest_to_proto(ref.digest));
  proto.set_bytes(ref.bytes);
  return proto;
}

Result<round::ModelRef> from_proto(const v1::ModelRef& ref) {
  FLUVIAL_ASSIGN(const Digest digest, digest_from_proto(ref.sha256()));
  if (ref.bytes() == 0 || ref.bytes() > round::kModelBytesMax) {
    return Error{Code::kInvalidArgument, "a model of " + std::to_string(ref.bytes()) + " bytes"};
  }
  return round::ModelRef{RunId(ref.run()), ModelVersion(ref.version()), digest, ref.bytes()};
}

v1::ModelForm to_proto(const round::ModelForm& form) {
  v1::ModelForm proto;
  proto.set_codec(form.codec);
  proto.set_chunk_values(form.chunk_values);
  proto.set_bytes(form.bytes);
  if (form.base) *proto.mutable_base() = to_proto(*form.base);
  return proto;
}

Result<round::ModelForm> from_proto(const v1::ModelForm& form) {
  constexpr std::size_t kCodecBytesMax = 64;
  if (form.codec().size() > kCodecBytesMax)
    return Error{Code::kInvalidArgument, "a codec's name of more than 64 bytes"};
  round::ModelForm out{form.codec(), form.chunk_values(), form.bytes(), {}};
  if (form.has_base()) {
    FLUVIAL_ASSIGN(out.base, from_proto(form.base()));
  }
  return out;
}

v1::LateRule to_proto(const round::Lateness& lateness) {
  v1::LateRule rule;
  rule.set_staleness_max(lateness.staleness_max);
  for (const std::uint32_t factor : lateness.factors) rule.add_factors(factor);
  for (const round::ModelRef& model : lateness.earlier) *rule.add_earlier() = to_proto(model);
  rule.set_drift_max(lateness.drift_max);
  return rule;
}

Result<round::Lateness> from_proto(const v1::LateRule& rule, const round::ModelRef& base, int scale_bits) {
  if (rule.factors_size() > static_cast<int>(round::kStalenessMost) + 2 ||
      rule.earlier_size() > static_cast<int>(round::kStalenessMost)) {
    return Error{Code::kInvalidArgument, "late updates: more factors or models than there can be"};
  }
  round::Lateness lateness{rule.staleness_max(), {rule.factors().begin(), rule.factors().end()}, {}, rule.drift_max()};
  for (const v1::ModelRef& model : rule.earlier()) {
    FLUVIAL_ASSIGN(lateness.earlier.emplace_back(), from_proto(model));
  }
  FLUVIAL_TRY(round::check_lateness(lateness, base, scale_bits));
  return lateness;
}

namespace {

void to_proto(const round::VectorRef& vector, v1::VectorRef* proto) {
  proto->set_sha256(digest_to_proto(vector.digest));
  proto->set_bytes(vector.bytes);
}

Result<round::VectorRef> vector_from_proto(const v1::VectorRef& vector) {
  FLUVIAL_ASSIGN(const Digest digest, digest_from_proto(vector.sha256()));
  return round::VectorRef{digest, vector.bytes()};
}

}  // namespace

v1::Pass to_proto(const round::Pass& pass) {
  v1::Pass proto;
  proto.set_index(pass.index);
  proto.set_count(pass.count);
  proto.set_value_count(pass.value_count);
  if (pass.mean) to_proto(*pass.mean, proto.mutable_mean());
  if (pass.state) to_proto(*pass.state, proto.mutable_state());
  return proto;
}

Result<round::Pass> from_proto(const v1::Pass& proto, std::uint64_t value_count) {
  round::Pass pass{proto.index(), proto.count(), proto.value_count(), {}, {}};
  if (proto.has_mean()) {
    FLUVIAL_ASSIGN(pass.mean, vector_from_proto(proto.mean()));
  }
  if (proto.has_state()) {
    FLUVIAL_ASSIGN(pass.state, vector_from_proto(proto.state()));
  }
  FLUVIAL_TRY(round::check_pass(pass));
  if (pass.value_count > value_count) {
    return Error{Code::kInvalidArgument, "a pass of more values than the model has"};
  }
  const std::uint64_t most = value_count * sizeof(float) + round::kVectorHeaderBytesMax;  // memory is reserved by it
  for (const auto& vector : {pass.mean, pass.state}) {
    if (!vector || vector->bytes <= most) continue;
    return Error{Code::kInvalidArgument, "a vector of " + std::to_string(vector->bytes) + " bytes, expected at most " +
                                             std::to_string(most) + ": factors of a model are no longer than it"};
  }
  return pass;
}

v1::OutcomeReply::Outcome to_proto(round::Outcome outcome) {
  switch (outcome) {
    case round::Outcome::kPending: return v1::OutcomeReply::OUTCOME_PENDING;
    case round::Outcome::kCounted: return v1::OutcomeReply::OUTCOME_COUNTED;
    case round::Outcome::kLate: return v1::OutcomeReply::OUTCOME_LATE;
    case round::Outcome::kRefused: return v1::OutcomeReply::OUTCOME_REFUSED;
  }
  return v1::OutcomeReply::OUTCOME_UNSPECIFIED;
}

Result<round::Outcome> from_proto(v1::OutcomeReply::Outcome outcome) {
  switch (outcome) {
    case v1::OutcomeReply::OUTCOME_PENDING: return round::Outcome::kPending;
    case v1::OutcomeReply::OUTCOME_COUNTED: return round::Outcome::kCounted;
    case v1::OutcomeReply::OUTCOME_LATE: return round::Outcome::kLate;
    case v1::OutcomeReply::OUTCOME_REFUSED: return round::Outcome::kRefused;
    default: return Error{Code::kInvalidArgument, "an outcome that nobody knows"};
  }
}

v1::Envelope to_envelope(const Opening& opening) {
  v1::Envelope envelope;
  v1::RoundOpen& message = *envelope.mutable_round_open();
  set_opening_fields(opening, message);
  to_proto(opening.participants, message.mutable_participants());
  to_proto(opening.counted, message.mutable_counted());
  to_proto(opening.gone, message.mutable_gone());
  message.set_soft_deadline_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(0, opening.soft_left.count())));
  message.set_hard_deadline_ms(static_cast<std::uint64_t>(std::max<std::int64_t>(0, opening.hard_left.count())));
  if (opening.received) {
    message.mutable_received()->set_incarnation(opening.received->incarnation.value());
    message.mutable_received()->set_number(opening.received->number);
    message.mutable_received()->set_chunks(opening.received->chunks);
  }
  if (opening.order) *message.mutable_order() = *opening.order;
  return envelope;
}

Result<Opening> from_proto(const v1::RoundOpen& message) {
  constexpr std::uint64_t kDeadlineMsMax = 7 * 86'400'000ULL;
  Opening opening;
  opening.run = RunId(message.run());
  opening.round = RoundId(message.round());
  opening.attempt = AttemptId(message.attempt());
  opening.epoch = Epoch(message.epoch());
  FLUVIAL_ASSIGN(opening.base, from_proto(message.base()));
  FLUVIAL_ASSIGN(opening.plan, from_proto(message.plan()));
  if (message.scale_bits() > 62) return Error{Code::kInvalidArgument, "scale beyond 62 bits"};
  opening.scale_bits = static_cast<int>(message.scale_bits());
  opening.value_count = message.value_count();
  opening.integer_count = message.integer_count();
  if (opening.value_count == 0 || opening.value_count > opening.base.bytes / sizeof(float) ||
      opening.integer_count > round::kIntegerCountMax) {
    return Error{Code::kInvalidArgument, "value or integer counts that do not fit the model's size"};
  }
  FLUVIAL_ASSIGN(opening.participants, from_proto(message.participants()));
  FLUVIAL_ASSIGN(opening.counted, from_proto(message.counted()));
  FLUVIAL_ASSIGN(opening.gone, from_proto(message.gone()));
  if (message.soft_deadline_ms() > kDeadlineMsMax || message.hard_deadline_ms() > kDeadlineMsMax) {
    return Error{Code::kInvalidArgument, "a deadline more than a week ahead"};
  }
  opening.soft_left = std::chrono::milliseconds(message.soft_deadline_ms());
  opening.hard_left = std::chrono::milliseconds(message.hard_deadline_ms());
  if (message.has_received()) {  // more chunks than there are: whoever goes on from there finds out
    const v1::Received& received = message.received();
    opening.received = Received{Incarnation(received.incarnation()), received.number(), received.chunks()};
  }
  if (static_cast<std::size_t>(message.continues_size()) > kContinuesMax) {
    return Error{Code::kInvalidArgument, "a run that continues more runs than are told"};
  }
  for (const std::uint64_t run : message.continues()) {
    if (run >= message.run()) return Error{Code::kInvalidArgument, "a run that continues a later one"};
    opening.continues.emplace_back(run);
  }
  if (message.has_late()) {
    FLUVIAL_ASSIGN(opening.late, from_proto(message.late(), opening.base, opening.scale_bits));
  }
  if (message.has_pass()) {
    FLUVIAL_ASSIGN(opening.pass, from_proto(message.pass(), opening.value_count));
  }
  if (message.has_order()) opening.order = std::make_shared<const v1::Signed>(message.order());
  return opening;
}

v1::Envelope to_envelope(const Commit& commit) {
  v1::Envelope envelope;
  v1::RoundCommit& message = *envelope.mutable_round_commit();
  message.set_run(commit.run.value());
  message.set_round(commit.round.value());
  message.set_attempt(commit.attempt.value());
  *message.mutable_model() = to_proto(commit.model);
  to_proto(commit.contributors, message.mutable_contributors());
  to_proto(commit.refusals, message.mutable_refusals());
  message.set_last(commit.last);
  to_proto(commit.late, message.mutable_late());
  if (commit.order) *message.mutable_order() = *commit.order;
  for (const auto& [site, outcome] : commit.outcomes) *message.add_outcomes() = *outcome;
  return envelope;
}

Result<Commit> from_proto(const v1::RoundCommit& message) {
  Commit commit;
  commit.run = RunId(message.run());
  commit.round = RoundId(message.round());
  commit.attempt = AttemptId(message.attempt());
  FLUVIAL_ASSIGN(commit.model, from_proto(message.model()));
  FLUVIAL_ASSIGN(commit.contributors, from_proto(message.contributors()));
  FLUVIAL_ASSIGN(commit.refusals, from_proto(message.refusals()));
  commit.last = message.last();
  FLUVIAL_ASSIGN(commit.late, from_proto(message.late()));
  if (message.has_order()) commit.order = std::make_shared<const v1::Signed>(message.order());
  if (static_cast<std::size_t>(message.outcomes_size()) > kParticipantsMax) {
    return Error{Code::kInvalidArgument, "outcomes of more sites than there can be"};
  }
  for (const v1::Signed& outcome : message.outcomes()) {
    FLUVIAL_ASSIGN(const SiteId site, site_of_outcome(outcome.body()));
    commit.outcomes[site] = std::make_shared<const v1::Signed>(outcome);
  }
  return commit;
}

v1::Envelope to_envelope(const round::Decline& decline) {
  v1::Envelope envelope;
  v1::Decline& message = *envelope.mutable_decline();
  message.set_run(decline.run.value());
  message.set_round(decline.round.value());
  message.set_attempt(decline.attempt.value());
  message.set_site(decline.refusal.site.value());
  message.set_code(code_to_proto(decline.refusal.error.code));
  message.set_message(printable(decline.refusal.error.message));
  return envelope;
}

round::Decline from_proto(const v1::Decline& message) {
  return {RunId(message.run()),
          RoundId(message.round()),
          AttemptId(message.attempt()),
          {SiteId(message.site()), error_from_proto(message.code(), message.message())}};
}

}  // namespace fluvial::wire
