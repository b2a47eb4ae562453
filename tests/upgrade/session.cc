#include "tests/upgrade/session.h"

#include "core/digest/sha256.h"
#include "core/store/audit_log.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/report_mapping.h"
#include "core/wire/statements.h"
#include "tests/upgrade/recording.h"
#include "tests/upgrade/signing.h"

namespace fluvial::upgrade {
namespace {

using v1::Envelope;

constexpr RunId kRun{3};
constexpr RoundId kRound{8};
const round::Contribution kContent{SiteId(8), Epoch(4), 17, {}, 0, {}};
const round::Refusal kRefusal{SiteId(8), {Code::kInvalidArgument, "NaN in tensor 'w'"}, RoundId(7), {kContent}};
constexpr SiteId kSite{7};
constexpr Epoch kLease{41};
constexpr round::HistoryId kHistory = kRecordedHistory;

std::string proto_digest(std::string_view text) { return wire::digest_to_proto(digest_of(text)); }

Envelope hello(Epoch lease) {
  Envelope message;
  v1::Hello& hello = *message.mutable_hello();
  hello.set_protocol_min(2);
  hello.set_protocol_max(2);
  hello.set_software("fluvial");
  hello.set_incarnation(5);
  hello.set_lease_epoch(lease.value());
  hello.set_history(lease == Epoch(0) ? 0 : 0x1122334455667788);
  return message;
}

Envelope welcome() {
  Envelope message;
  message.mutable_welcome()->set_protocol(2);
  message.mutable_welcome()->set_software("fluvial");
  message.mutable_welcome()->set_heartbeat_ms(5'000);
  message.mutable_welcome()->set_takes_reports(true);
  message.mutable_welcome()->set_takes_tree_digests(true);
  return message;
}

round::Lineage lineage() {
  return {
      {round::HistoryId(0x0102030405060708), Epoch(11), RunId(2), {{RunId(2), RoundId(4)}}},
      {round::HistoryId(0x1122334455667788), Epoch(30), RunId(3), {{RunId(2), RoundId(9)}, {RunId(3), RoundId(1)}}}};
}

Envelope lease_request() {
  Envelope message;
  v1::LeaseRequest& request = *message.mutable_lease_request();
  request.set_advertise("eu.example.org:7410");
  request.set_unreachable(2);
  *request.mutable_standing() = wire::to_proto(
      round::Standing{round::HistoryId(0x1122334455667788),
                      Epoch(40),
                      {{kRun, RoundId(7), true, true, digest_of("counted")}, {kRun, kRound, false, false, {}}}});
  return message;
}

Envelope lease_grant() {
  Envelope message;
  v1::LeaseGrant& grant = *message.mutable_lease_grant();
  grant.set_epoch(kLease.value());
  v1::Parent& eu = *grant.add_parents();
  eu.set_node(2);
  eu.set_name("eu");
  eu.set_role(v1::NODE_ROLE_AGGREGATOR);
  eu.set_address("eu.example.org:7410");
  v1::Parent& root = *grant.add_parents();
  root.set_name("coordinator");
  root.set_role(v1::NODE_ROLE_COORDINATOR);
  wire::to_proto(lineage(), grant.mutable_histories());
  return message;
}

void enrol(Session& session) {
  Envelope request;
  request.mutable_enrol_request()->set_token_secret("32 bytes that a token's text says");
  request.mutable_enrol_request()->set_csr_der("a request, DER");
  session.child(request);
  Envelope reply;
  v1::EnrolReply& enrolled = *reply.mutable_enrol_reply();
  enrolled.set_certificate_pem("a certificate, PEM");
  enrolled.set_ca_pem("the authority's, PEM");
  enrolled.set_node(kSite.value());
  enrolled.set_name("hospital-a");
  enrolled.set_role(v1::NODE_ROLE_SITE);
  enrolled.set_region("eu/west");
  enrolled.set_port(7400);
  enrolled.set_enrolled_before(1);
  session.parent(reply);
  Envelope refused;
  refused.mutable_enrol_reply()->set_code(wire::code_to_proto(Code::kUnauthenticated));
  refused.mutable_enrol_reply()->set_message("the token was used at 2026-11-22 10:00:00 UTC");
  session.parent(refused);
}

void members(Session& session) {
  Envelope up;
  v1::Member& member = *up.mutable_member_change()->add_up();
  member.set_node(kSite.value());
  member.set_name("hospital-a");
  member.set_role(v1::NODE_ROLE_SITE);
  member.set_lease_epoch(kLease.value());
  member.set_incarnation(5);
  member.set_parent(2);
  session.child(up);
  Envelope down;
  down.mutable_member_change()->add_down(9);
  down.mutable_member_change()->add_down(10);
  session.parent(down);
}

round::ModelRef base() { return {kRun, ModelVersion(7), digest_of("base"), 24}; }

round::Plan plan() {
  round::Plan plan;
  plan.name = "digits";
  plan.rounds = 20;
  plan.local_steps = 4;
  plan.codec = "int8:block=256,rounding=stochastic";
  plan.chunk_values = 4'096;
  plan.fraction_bits = 36;
  plan.value_abs_max = 512;
  plan.update_norm_max = 100;
  plan.participants_fraction = 0.5;
  plan.participants_min = 3;
  plan.quorum = 2;
  plan.weight_min = 10;
  plan.soft_deadline = round::Milliseconds(20'000);
  plan.adaptive_deadlines = true;
  plan.soft_deadline_min = round::Milliseconds(3'000);
  plan.hard_deadline = round::Milliseconds(50'000);
  plan.attempts_max = 5;
  plan.optimizer = round::parse_server_optimizer("fedadam:lr=0.01").value();
  plan.residual_norm_max = 1e6;
  plan.residual_age_max_rounds = 9;
  plan.models_kept = 4;
  plan.models_kept_best = "test_accuracy:max";
  plan.metrics_by_site = false;
  plan.seed = 99;
  plan.sum_digest = true;
  plan.workers_missing = round::MissingWorkers::kDecline;
  plan.workers_deadline = round::Milliseconds(7'000);
  plan.worker.values = {{"lr", 0.05},
                        {"network", "small"},
                        {"nesterov", true},
                        {"widths", std::vector<double>{8, 16}},
                        {"layers", std::vector<std::string>{"conv1", "fc"}}};
  return plan;
}

wire::Opening opening_of_round() {
  wire::Opening opening;
  opening.run = kRun;
  opening.round = kRound;
  opening.attempt = AttemptId(2);
  opening.epoch = Epoch(42);
  opening.base = base();
  opening.plan = plan();
  opening.scale_bits = 30;
  opening.value_count = 6;
  opening.integer_count = 1;
  opening.participants = {{kSite, kLease, 1'000}, {SiteId(8), Epoch(39), 500, 48}};
  opening.counted = {SiteId(8)};
  opening.gone = {SiteId(9)};
  opening.soft_left = std::chrono::milliseconds(18'000);
  opening.hard_left = std::chrono::milliseconds(48'000);
  opening.received = wire::Received{Incarnation(5), 3, 1};
  opening.continues = {RunId(2), RunId(1)};
  opening.late = {{2, {512, 362, 296, 256}, {{kRun, ModelVersion(6), digest_of("the base before"), 24}}, 3}};
  return opening;
}

v1::ModelForm form_of_model() { return wire::to_proto(round::ModelForm{"int8", 1 << 20, 24, base()}); }

void open_round(Session& session) {
  session.parent(wire::to_envelope(opening_of_round()));
  Envelope request;
  *request.mutable_model_request()->mutable_model() = wire::to_proto(base());
  request.mutable_model_request()->set_offset(8);
  request.mutable_model_request()->set_takes_form(true);
  *request.mutable_model_request()->mutable_have() = wire::to_proto(base());
  *request.mutable_model_request()->mutable_begun() = form_of_model();
  request.mutable_model_request()->set_form_offset(8);
  session.child(request);
  Envelope begin;
  v1::ModelBegin& model = *begin.mutable_model_begin();
  *model.mutable_model() = wire::to_proto(base());
  *model.mutable_schema() = wire::to_proto(
      round::Schema::make({{"w", round::DType::kF32, {2, 2}}, {"steps", round::DType::kI64, {1}}}).value());
  model.set_offset(8), model.set_first_tensor(1), model.set_more_tensors(true), *model.mutable_form() = form_of_model();
  session.parent(begin);
  Envelope chunk;
  chunk.mutable_model_chunk()->set_run(kRun.value());
  chunk.mutable_model_chunk()->set_version(7);
  chunk.mutable_model_chunk()->set_offset(8);
  session.parent(chunk, "sixteen of bytes");
}

Envelope begin_of_update() {
  Envelope begin;
  v1::UpdateBegin& update = *begin.mutable_update_begin();
  v1::UpdateKey& key = *update.mutable_key();
  key.set_run(kRun.value());
  key.set_round(kRound.value());
  key.set_site(kSite.value());
  key.set_incarnation(5);
  key.set_submission(3);
  update.set_weight(17);
  update.set_codec("int8:block=256,rounding=stochastic");
  update.set_value_count(6);
  update.set_chunk_count(2);
  update.set_integer_count(1);
  update.set_base_sha256(proto_digest("base"));
  update.set_lease_epoch(kLease.value());
  (*update.mutable_metrics())["loss"] = 0.25;
  update.set_first_chunk(1);
  return begin;
}

std::string trailer_of_update() { return {"\x09\0\0\0\0\0\0\0\0\0\x80\x3f", 12}; }  // one integer, the probe

void update(Session& session) {
  Envelope begin = begin_of_update();
  session.child(begin);
  Envelope chunk;
  chunk.mutable_update_chunk()->set_index(1);
  session.child(chunk, "an encoded chunk");
  Envelope end;
  end.mutable_update_end()->set_sha256(proto_digest("update"));
  session.child(end, trailer_of_update());
  begin.mutable_update_begin()->set_probe(1);  // encoded by 0.1
  begin.mutable_update_begin()->set_first_chunk(0);
  session.child(begin);
  begin.mutable_update_begin()->set_into(kRound.value() + 1);  // it has missed its own
  session.child(begin);
  Envelope receipt;
  receipt.mutable_receipt()->set_run(kRun.value());
  receipt.mutable_receipt()->set_round(kRound.value());
  receipt.mutable_receipt()->set_site(kSite.value());
  session.parent(receipt);
  session.child(wire::to_envelope(
      round::Decline{kRun, kRound, AttemptId(2), {kSite, {Code::kUnavailable, "no worker is attached"}}}));
}

round::Contribution contribution() {
  round::Contribution one{kSite,          kLease, 17, digest_of("update"), std::int64_t{17} << 30, {{"loss", 0.25}},
                          Incarnation(5), 3};
  one.share = 160;
  one.base = ModelVersion(6);
  one.admitted = ModelVersion(7);
  one.times = {std::chrono::microseconds(1'500), std::chrono::microseconds(700), std::chrono::microseconds(80)};
  return one;
}

Envelope begin_of_partial() {
  Envelope begin;
  v1::PartialBegin& partial = *begin.mutable_partial_begin();
  partial.set_run(kRun.value());
  partial.set_round(kRound.value());
  partial.set_attempt(2);
  partial.set_epoch(42);
  partial.set_sequence(2);
  *partial.add_contributors() = wire::to_proto(contribution());
  *partial.add_refusals() = wire::to_proto(kRefusal);
  partial.add_missing(9);
  partial.set_chunk_count(2);
  partial.set_scale_bits(30);
  partial.set_incarnation(6);
  partial.set_first_chunk(1);
  return begin;
}

void partial(Session& session) {
  session.child(begin_of_partial());
  Envelope chunk;
  chunk.mutable_partial_chunk()->set_index(1);
  session.child(chunk, "a packed chunk");
  Envelope end;
  end.mutable_partial_end()->set_sha256(proto_digest("partial"));
  session.child(end, std::string("\x99\0\0\0\0\0\0\0", 8));
  Envelope receipt;
  v1::Receipt& refused = *receipt.mutable_receipt();
  refused.set_run(kRun.value());
  refused.set_round(kRound.value());
  refused.set_sequence(2);
  refused.set_code(wire::code_to_proto(Code::kAlreadyExists));
  refused.set_message("site 8 is counted already");
  refused.add_without(8);
  session.parent(receipt);
}

wire::Commit commit_of_round() {
  wire::Commit commit;
  commit.run = kRun;
  commit.round = kRound;
  commit.attempt = AttemptId(2);
  commit.model = {kRun, ModelVersion(8), digest_of("model"), 24};
  FLUVIAL_CHECK(commit.contributors.add(contribution()).ok(), "one contributor");
  commit.refusals = {kRefusal};
  commit.last = true;
  commit.late = {SiteId(9)};
  return commit;
}

Envelope outcome_reply() {
  Envelope reply;
  reply.mutable_outcome_reply()->set_run(kRun.value());
  reply.mutable_outcome_reply()->set_round(kRound.value());
  reply.mutable_outcome_reply()->set_site(kSite.value());
  reply.mutable_outcome_reply()->set_sha256(proto_digest("update"));
  reply.mutable_outcome_reply()->set_outcome(v1::OutcomeReply::OUTCOME_COUNTED);
  return reply;
}

void close_round(Session& session) {
  session.parent(wire::to_envelope(commit_of_round()));
  Envelope state;
  state.mutable_run_state()->set_run(kRun.value());
  state.mutable_run_state()->set_name("digits");
  state.mutable_run_state()->set_state("paused");
  state.mutable_run_state()->set_reason("no quorum");
  session.parent(state);
  Envelope query;
  query.mutable_outcome_query()->set_run(kRun.value());
  query.mutable_outcome_query()->set_round(kRound.value());
  query.mutable_outcome_query()->set_site(kSite.value());
  query.mutable_outcome_query()->set_sha256(proto_digest("update"));
  session.child(query);
  session.parent(outcome_reply());
}

void report(Session& session) {
  round::NodeReport report;
  report.node = kSite;
  report.doing = round::Doing::kSending;
  report.doing_for = std::chrono::milliseconds(1'250);
  report.run = kRun;
  report.round = kRound;
  report.workers = 2;
  report.done_bytes = 3'000;
  report.total_bytes = 12'000;
  report.bytes_up = 70'000;
  report.bytes_down = 80'000;
  report.note = "1 of 2 workers attached";
  report.certificate_ends = WallTime(std::chrono::milliseconds(1'800'000'000'000));
  report.clock = round::ClockDistance{std::chrono::milliseconds(-40), std::chrono::microseconds(300)};
  round::RoundSpans spans{kRun, RoundId(7), {}};
  TimePoint begun{std::chrono::seconds(100)};
  for (const round::SpanKind kind : round::kSpanKinds) {
    const TimePoint ended = begun + std::chrono::milliseconds(20);
    spans.spans.push_back({kind, kind == round::SpanKind::kStage ? kSite : NodeId(0), begun, ended});
    begun = ended;
  }
  report.rounds = {spans};
  round::NodeReport below;
  below.node = SiteId(8);
  below.doing = round::Doing::kIdle;
  below.clock.reset();
  for (const Envelope& message : wire::to_envelopes({report, below})) session.child(message);
}

Envelope goodbye(std::uint32_t code, const char* text) {
  Envelope message;
  message.mutable_goodbye()->set_code(code);
  message.mutable_goodbye()->set_message(text);
  return message;
}

// ---- what is signed

v1::Signed lease_under(NodeId parent, const char* parent_name) {
  return signed_lease(
      {kSite, recorded_public_key("hospital-a").id(), kLease, parent, recorded_public_key(parent_name).id(), kHistory});
}

wire::Order order(std::string_view kind, const std::string& body) {
  return std::make_shared<const v1::Signed>(signed_by_coordinator(kind, body));
}

wire::Order outcome(SiteId site, round::Outcome outcome, std::optional<Digest> digest, RoundId own = {}) {
  return order(wire::kOutcomeKind, wire::outcome_body({kRun, kRound, site, outcome, digest, own}, kHistory));
}

std::string signature_of_contribution() {
  const std::string body = wire::contribution_body(kRun, kRound, base().digest, contribution());
  return wire::signature_to_proto(sign_as("hospital-a", wire::kContributionKind, body));
}

void signed_leases(Session& session) {
  Envelope request = lease_request();
  request.mutable_lease_request()->set_shows_lease(true);
  request.mutable_lease_request()->set_process(0x99aabbccddeeff00);
  session.child(request);
  Envelope granted = lease_grant();
  v1::LeaseGrant& grant = *granted.mutable_lease_grant();
  grant.mutable_parents(0)->set_key_sha256(wire::digest_to_proto(recorded_public_key("eu").id()));
  *grant.add_leases() = lease_under(NodeId(2), "eu");
  *grant.add_leases() = lease_under(NodeId(0), kCoordinator);
  *grant.mutable_denials() = signed_denials(6);
  session.parent(granted);
  Envelope shown = hello(kLease);
  *shown.mutable_hello()->mutable_lease() = grant.leases(0);
  session.child(shown);
  Envelope change;
  *change.mutable_member_change()->add_leases() = grant.leases(0);
  session.parent(change);
  Envelope denied;
  *denied.mutable_denials() = signed_denials(7);
  session.parent(denied);
}

void signed_round(Session& session) {
  wire::Opening opening = opening_of_round();
  opening.base_tree = digest_of("the base's tree");
  opening.order = order(wire::kOpeningKind, wire::opening_body(opening, {SiteId(12), SiteId(8), kSite}, kHistory));
  session.parent(wire::to_envelope(opening));
  Envelope begin = begin_of_update();
  begin.mutable_update_begin()->set_digest(v1::DIGEST_TREE);
  session.child(begin);
  Envelope end;
  end.mutable_update_end()->set_sha256(proto_digest("update"));
  end.mutable_update_end()->set_signature(signature_of_contribution());
  session.child(end, trailer_of_update());
  Envelope partial = begin_of_partial();
  partial.mutable_partial_begin()->mutable_contributors(0)->set_signature(signature_of_contribution());
  partial.mutable_partial_begin()->set_digest(v1::DIGEST_TREE);
  session.child(partial);

  wire::Commit commit = commit_of_round();
  commit.model_tree = digest_of("the model's tree");
  const std::string audit_head(as_text(store::AuditHead{12, digest_of("audit")}.bytes()));
  commit.order = order(wire::kCommitKind, wire::commit_body(commit, audit_head, kHistory, digest_of("master")));
  commit.outcomes = {{kSite, outcome(kSite, round::Outcome::kCounted, digest_of("update"))},
                     {SiteId(8), outcome(SiteId(8), round::Outcome::kRefused, {}, kRefusal.own)},
                     {SiteId(9), outcome(SiteId(9), round::Outcome::kLate, {})}};
  Envelope committed = wire::to_envelope(commit);
  committed.mutable_round_commit()->mutable_contributors(0)->set_signature(signature_of_contribution());
  session.parent(committed);
  Envelope reply = outcome_reply();
  *reply.mutable_outcome_reply()->mutable_order() = *commit.outcomes.at(kSite);
  session.parent(reply);

  Envelope state;
  state.mutable_run_state()->set_run(kRun.value());
  state.mutable_run_state()->set_name("digits");
  state.mutable_run_state()->set_state("stopped");
  state.mutable_run_state()->set_reason("by a person");
  *state.mutable_run_state()->mutable_order() =
      *order(wire::kRunStateKind, wire::run_state_body(state.run_state(), Epoch(42), kHistory));
  session.parent(state);
}

}  // namespace

std::vector<SessionFrame> session_of_this_version() {
  Session session;
  enrol(session);
  session.child(hello(Epoch(0)));
  session.parent(welcome());
  session.child(lease_request());
  session.parent(lease_grant());
  session.child(goodbye(wire::code_to_proto(Code::kCancelled), "lease taken"));
  session.child(hello(kLease));
  session.parent(welcome());
  members(session);
  open_round(session);
  update(session);
  partial(session);
  close_round(session);
  report(session);
  Envelope ping;
  ping.mutable_ping()->set_token(77);
  session.parent(ping);
  Envelope pong;
  pong.mutable_pong()->set_token(77);
  pong.mutable_pong()->set_received_ns(5'000'000'000);
  pong.mutable_pong()->set_sent_ns(5'000'100'000);
  pong.mutable_pong()->set_wall_ms(1'790'000'000'000);
  session.child(pong);
  session.parent(goodbye(0, "draining"));
  // Until here as a neighbour says it that signs nothing and passes on nothing that is signed.
  signed_leases(session);
  signed_round(session);
  second_pass(session, {opening_of_round(), base(), begin_of_update(), contribution(), begin_of_partial()});
  // And from here on one whose certificates renew themselves.
  renewals(session, {hello(kLease), welcome(), lease_request(), lease_grant(), signed_denials(8)});
  return session.take();
}

}  // namespace fluvial::upgrade
