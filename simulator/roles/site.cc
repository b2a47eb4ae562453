#include "simulator/roles/site.h"

#include <algorithm>
#include <boost/asio/awaitable.hpp>
#include <chrono>
#include <utility>

#include "core/identity/signature.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/statements.h"
#include "edge/service/service.h"
#include "edge/update/open.h"

namespace fluvial::simulator {
namespace {

config::EdgeSettings settings_of(const Scenario& scenario) {
  config::EdgeSettings settings;
  settings.reduction = "direct";
  settings.outcome_interval_ms = static_cast<std::uint64_t>(
      std::chrono::duration_cast<std::chrono::milliseconds>(scenario.federation.outcome_interval).count());
  return settings;
}

// What a tampered one believes is signed as well: it is wrong in its own way alone.
void sign(const Cast& cast, std::string_view kind, std::string body, v1::Signed* order) {
  const Result<Signature> signature = identity::sign(cast.key(kRoot), kind, as_byte_span(body));
  FLUVIAL_CHECK(signature.ok(), "a key signs");
  order->set_body(std::move(body));
  order->set_signature(wire::signature_to_proto(*signature));
}

void say_outcome(const Cast& cast, const wire::Decided& decided, round::HistoryId history, v1::Signed* order) {
  sign(cast, wire::kOutcomeKind, wire::outcome_body(decided, history), order);
}

void say_opening(const Cast& cast, round::HistoryId history, v1::RoundOpen* open) {
  const Result<wire::Opening> opening = wire::from_proto(*open);
  if (!opening.ok()) return;
  std::vector<SiteId> sites;
  for (const round::Participant& participant : opening->participants) sites.push_back(participant.site);
  sign(cast, wire::kOpeningKind, wire::opening_body(*opening, sites, history), open->mutable_order());
}

void say_outcome(const Cast& cast, round::HistoryId history, v1::OutcomeReply* reply) {
  const Result<Digest> digest = wire::digest_from_proto(reply->sha256());
  const Result<round::Outcome> outcome = wire::from_proto(reply->outcome());
  if (!digest.ok() || !outcome.ok()) return;
  const wire::Decided decided{RunId(reply->run()), RoundId(reply->round()), SiteId(reply->site()), *outcome, *digest};
  say_outcome(cast, decided, history, reply->mutable_order());
}

// A commit's verdict on the site, as a tampered site understands it.
void tell(Cast& cast, round::HistoryId history, SiteId self, v1::Envelope* message) {
  Result<wire::Commit> commit = wire::from_proto(message->round_commit());
  if (!commit.ok()) return;
  const edge::Verdict is = edge::verdict_of(self, commit->contributors, commit->refusals, commit->late);
  edge::Verdict told = is;
  cast.tamper().told(&told);
  if (told.late == is.late && told.refused == is.refused) return;
  std::erase(commit->late, self);
  std::erase_if(commit->refusals, [self](const round::Refusal& refusal) { return refusal.site == self; });
  if (told.late) commit->late.push_back(self);
  if (told.refused) commit->refusals.push_back({self, {Code::kInvalidArgument, "taken for refused"}});
  std::ranges::sort(commit->late);
  std::ranges::sort(commit->refusals, {}, &round::Refusal::site);
  if (told.late || told.refused) {
    const round::Outcome outcome = told.late ? round::Outcome::kLate : round::Outcome::kRefused;
    auto order = std::make_shared<v1::Signed>();
    say_outcome(cast, {commit->run, commit->round, self, outcome, std::nullopt}, history, order.get());
    commit->outcomes[self] = std::move(order);
  }
  *message = wire::to_envelope(*commit);
}

void tell(Cast& cast, round::HistoryId history, v1::OutcomeReply* reply) {
  if (reply->round() == 0) return;
  const auto is = static_cast<round::Outcome>(reply->outcome());
  round::Outcome outcome = is;
  cast.tamper().told(&outcome);
  if (outcome == is) return;
  reply->set_outcome(static_cast<v1::OutcomeReply::Outcome>(outcome));
  say_outcome(cast, history, reply);
}

}  // namespace

// The service that ships, except for what a tampered or malicious one hears and shows.
class SiteRole::Tampered final : public edge::EdgeService {
 public:
  Tampered(SiteRole& role, Parts parts)
      : EdgeService(role.runtime(), settings_of(role.cast_.scenario()), std::move(parts)),
        role_(role),
        tamper_(role.cast_.tamper()) {}

  net::Awaitable<Result<round::Standing>> standing() override {
    Result<round::Standing> standing = co_await EdgeService::standing();
    if (standing.ok()) role_.cast_.claim(role_.host(), &*standing);
    co_return standing;
  }
  net::Awaitable<Status> from_parent(net::Frame frame) override {
    v1::Envelope& message = frame.header;
    if (message.has_round_open() && role_.malice_.begins_anew()) message.mutable_round_open()->clear_received();
    if (message.has_round_open() && tamper_.trusts_unsigned()) {
      say_opening(role_.cast_, history(), message.mutable_round_open());
    }
    if (message.has_round_open() && role_.cast_.knows_no_late(role_.host())) message.mutable_round_open()->clear_late();
    if (message.has_round_commit()) tell(role_.cast_, history(), role_.self(), &message);
    if (message.has_outcome_reply()) tell(role_.cast_, history(), message.mutable_outcome_reply());
    if (message.has_receipt() && message.receipt().code() == 0 && tamper_.counts_on_ack()) message = counted(message);
    co_return co_await EdgeService::from_parent(std::move(frame));
  }

  void renewal_told(Duration validity, std::uint64_t trust) override {
    if (role_.renewing_) role_.renewing_->told();
    if (!tamper_.renews_too_late()) EdgeService::renewal_told(validity, trust);
  }
  void parent_up(const tree::Lease& lease) override {
    role_.cast_.parent_up(role_.host(), lease, role_.answered_);
    EdgeService::parent_up(lease);
  }

 private:
  round::HistoryId history() const { return round::current_of(role_.lineage_); }
  v1::Envelope counted(const v1::Envelope& receipt) const {
    const auto& submission = role_.submission_;
    if (!submission || submission->start.round.value() != receipt.receipt().round()) return receipt;
    v1::Envelope message;
    v1::OutcomeReply& reply = *message.mutable_outcome_reply();
    reply.set_run(submission->start.run.value());
    reply.set_round(submission->start.round.value());
    reply.set_site(role_.self().value());
    reply.set_sha256(wire::digest_to_proto(submission->digest));
    reply.set_outcome(v1::OutcomeReply::OUTCOME_COUNTED);
    say_outcome(role_.cast_, history(), &reply);
    return message;
  }

  SiteRole& role_;
  Tamper& tamper_;
};

SiteRole::SiteRole(Cast& cast, HostId host)
    : Node(cast.world(), host, Role::kSite, cast.identities(), cast.work_costs(), &cast.site_metrics()),
      cast_(cast),
      malice_(cast, host),
      trainers_(cast, host) {}

SiteRole::~SiteRole() { take_down(); }

void SiteRole::start() {
  const Status opened = open();
  if (is_dead() || opened.ok()) return;
  const Code code = opened.error().code;
  if (code != Code::kUnavailable && code != Code::kResourceExhausted) {  // no disk error: its files are not whole
    world().violate("nothing_lost", cast_.identity(host()).name + ": " + opened.error().to_string());
  }
  fail();
}

// The process ends with a message; its supervisor starts it again.
void SiteRole::fail() { world().kill_for(host(), Death::kProcess, std::chrono::seconds(1)); }

Status SiteRole::open() {
  FLUVIAL_ASSIGN(std::unique_ptr<store::SiteStore> store,
                 edge::open_site_store(cast_.tamper().site_files(host(), runtime().files), "state",
                                       cast_.enrolled_before(host())));
  store_ = store.get();
  FLUVIAL_ASSIGN(lineage_, store->lineage());
  FLUVIAL_ASSIGN(const round::Standing standing, store->standing());
  cast_.checks().sites().in_history(self(), standing.history);
  look();
  const Incarnation incarnation = store->incarnation();
  cast_.checks().incarnation_began(host(), incarnation);
  tree::UplinkOptions uplink;
  uplink.coordinator = Cast::host_port(kRoot);
  uplink.incarnation = incarnation;
  uplink.software = "fluvial simulate";
  uplink.jitter_seed = (std::uint64_t{host().value()} << 32) ^ incarnation.value() ^ world().chance().seed();
  uplink.protocols = cast_.protocols(host());
  auto at = [this](const net::HostPort& address) { return who_is_at(address); };
  if (cast_.ends(host())) {
    renewing_.emplace(cast_, host(), runtime(), dial([](const net::HostPort&) { return Answer{kRoot, kRoot}; }),
                      dial([this](const net::HostPort&) { return enrolment(); }));
    uplink.verify = renewing_->renewal().verifier();
    uplink.past_certificate_max = cast_.past_certificate_max();
  }
  tree::Dial to_parent = dial(at);
  if (cast_.rollovers().on()) {
    set_trusts([this](const identity::PeerIdentity& peer) { return cast_.rollovers().accepts(host(), peer); });
    if (renewing_) to_parent = renewing_->renewal().watching(std::move(to_parent));
  }
  service_ = std::make_unique<Tampered>(*this, edge::EdgeService::Parts{.uplink = uplink,
                                                                        .dial = std::move(to_parent),
                                                                        .self = cast_.identities()(host()),
                                                                        .store = std::move(store),
                                                                        .gpus = nullptr,
                                                                        .trainers = trainers_,
                                                                        .report = *this,
                                                                        .tasks = tasks(),
                                                                        .set_ready = [](bool) {},
                                                                        .request_stop = [this] { fail(); },
                                                                        .renewal = renewal(),
                                                                        .key = own_key()});
  if (renewing_) {
    renewing_->renewal().tell(
        [this](const std::string& chain_pem, WallTime ends) { service_->certificate_renewed(chain_pem, ends); },
        [this] { service_->look_at_certificates(); });
    spawn("watch", renewing_->watch());
  }
  set_outgoing([this](SessionId session, v1::Envelope& message, SharedBytes& payload) {
    return says(session, message, payload);
  });
  return service_->open();
}

Node::Answer SiteRole::who_is_at(const net::HostPort& address) {
  cast_.dials(host());
  answered_ = cast_.who_answers_at(host(), net::to_string(address));
  return {answered_, cast_.tamper().checks_role_alone() ? cast_.host_at(net::to_string(address)) : answered_};
}

Node::Answer SiteRole::enrolment() { return {kRoot, kRoot, cast_.rollovers().enrolment()}; }

tree::Renewal* SiteRole::renewal() { return renewing_ ? &renewing_->renewal() : nullptr; }

std::optional<identity::PrivateKey> SiteRole::own_key() const {
  if (cast_.is_older(host())) return std::nullopt;
  return cast_.key(host());
}

bool SiteRole::waits_for_outcome() const {
  if (!service_) return false;
  const edge::SiteStatus status = service_->status();
  return status.connected && status.pending_round != RoundId(0);
}

net::Awaitable<void> SiteRole::serve(std::shared_ptr<net::Session>) { co_return; }  // nobody connects to a site

bool SiteRole::says(SessionId session, v1::Envelope& message, SharedBytes& payload) {
  cast_.hello(host(), &message);
  if (message.has_update_begin()) sends_pass_ = message.update_begin().pass();
  if (message.has_update_end()) check_durable();
  return malice_.says(session, message, payload, on_its_way());
}

}  // namespace fluvial::simulator
