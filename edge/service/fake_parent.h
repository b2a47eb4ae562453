// A parent for tests: the tree's real hub, and an owner that does what the test says.
#pragma once

#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "core/identity/signature.h"
#include "core/identity/testing.h"
#include "core/transfer/incoming.h"
#include "core/tree/hub.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"
#include "core/wire/statements.h"
#include "edge/service/test_support.h"

namespace fluvial::edge {

class FakeParent final : public tree::HubOwner {
 public:
  enum class Signing { kNothing, kClaimed, kOpenings };  // kClaimed: leases say that it signs, and it does not

  FakeParent(const identity::TestPki& pki, wire::Opening opening, DigestKind takes = DigestKind::kTree)
      : own_(pki.credentials(Role::kCoordinator, NodeId(1), "root")),
        opening_(std::move(opening)),
        hub_(runtime_.get(), *this,
             {.host = "127.0.0.1", .spill_folder = "/spill", .software = "test", .digest_kind = takes},
             std::make_shared<identity::DenyList>()) {
    const Result<std::uint16_t> port = hub_.open(identity::live(identity::TlsContext::member_server(own_).value()));
    EXPECT_TRUE(port.ok()) << port.error().to_string();
    port_ = *port;
    running_ = net::asio::co_spawn(runtime_.threads().executor(), hub_.run(), net::asio::use_future);
  }
  ~FakeParent() override {
    hub_.stop();
    running_.get();
  }

  std::uint16_t port() const { return port_; }

  // ---- what the test does ----
  void hold(const HeldModel& model) {
    runtime_.on_strand([&] {
      models_[model.ref.version] = std::make_shared<tree::ModelSlot>(runtime_.get().strand, model.ref, model.schema,
                                                                     model.bytes->as_shared_bytes());
    });
  }
  void set_plan(const std::function<void(round::Plan&)>& change) {
    runtime_.on_strand([&] { change(opening_.plan); });
  }
  void set_weight_max(SiteId site, std::uint64_t weight_max) {
    runtime_.on_strand([&] { opening_.participants = {{site, Epoch(5), weight_max}}; });
  }
  void set_run(RunId run, std::vector<RunId> continues) {
    runtime_.on_strand([&] {
      opening_.run = run;
      opening_.continues = std::move(continues);
    });
  }
  // A site knows from its next lease on whether the coordinator signs what it orders.
  void sign(Signing signing) {
    runtime_.on_strand([&] { signing_ = signing; });
  }
  void tell_run_state(SiteId site, RunId run, const std::string& state, const std::string& name = "") {
    v1::Envelope message;
    message.mutable_run_state()->set_run(run.value());
    message.mutable_run_state()->set_state(state);
    message.mutable_run_state()->set_name(name);
    runtime_.on_strand([&] { hub_.send(site, message); });
  }
  void open_round(SiteId site, std::uint64_t round, const HeldModel& base, AttemptId attempt = AttemptId(1)) {
    runtime_.on_strand([&] {
      opening_.round = RoundId(round);
      opening_.attempt = attempt;
      opening_.base = base.ref;
      opening_.order = signing_ == Signing::kOpenings ? signed_opening() : nullptr;
      if (opening_.late) {
        opening_.late->earlier.clear();
        for (std::uint64_t old = 1; old <= opening_.late->staleness_max && old <= base.ref.version.value(); ++old) {
          opening_.late->earlier.push_back(models_.at(ModelVersion(base.ref.version.value() - old))->ref());
        }
        hub_.book().go_over(opening_.run, opening_.round, opening_.late->staleness_max);
      } else {
        hub_.book().open(opening_.run, opening_.round);
      }
      opening_.received = hub_.book().received(site);
      received.put(opening_.received ? opening_.received->chunks : 0);
      hub_.send(site, wire::to_envelope(opening_));
    });
  }
  // That submission of the site is here already, with other bytes: it is turned away.
  void hold_other(SiteId site, std::uint64_t round, Incarnation incarnation, std::uint64_t submission) {
    runtime_.on_strand([&] {
      turns_away_ = true;
      hub_.book().open(opening_.run, RoundId(round));
      transfer::StagedArrival other;
      other.run = opening_.run;
      other.round = RoundId(round);
      EXPECT_TRUE(other.what.contributors.add({site, Epoch(5), 1, {}, 0, {}, incarnation, submission}).ok());
      hub_.book().complete(other);
    });
  }
  // A receipt: the rest of what the site is sending is not wanted.
  void refuse_update(SiteId site, std::uint64_t round, Code code) {
    runtime_.on_strand([&] {
      hub_.send(site, transfer::update_receipt(opening_.run, RoundId(round), site, Error{code, "no room for it"}));
    });
  }
  // The coordinator was restored from a backup: its leases are of another history from here on.
  void begin_history(const round::History& history) {
    runtime_.on_strand([&] { lineage_.push_back(history); });
  }
  // Another coordinator answers, which was never restored.
  void forget_histories() {
    runtime_.on_strand([&] { lineage_.clear(); });
  }
  void commit(SiteId site, const wire::Commit& commit) {
    runtime_.on_strand([&] { hub_.send(site, wire::to_envelope(commit)); });
  }
  void cut(SiteId site) {
    runtime_.on_strand([&] { hub_.cut(site, {Code::kStale, "cut by the test"}); });
  }
  void answer(SiteId site, const v1::OutcomeQuery& query, v1::OutcomeReply::Outcome outcome) {
    v1::Envelope message;
    v1::OutcomeReply& reply = *message.mutable_outcome_reply();
    reply.set_run(query.run());
    reply.set_round(query.round());
    reply.set_site(query.site());
    reply.set_sha256(query.sha256());
    reply.set_outcome(outcome);
    runtime_.on_strand([&] { hub_.send(site, message); });
  }
  std::uint64_t payload_bytes_in() const { return hub_.payload_bytes_in(); }
  Mailbox<std::uint64_t> received;  // chunks that each opening says are here
  Mailbox<Incarnation> joined;
  Mailbox<SiteId> left;
  Mailbox<transfer::StagedArrival> arrivals;
  Mailbox<round::Refusal> refusals;
  Mailbox<round::Decline> declines;
  Mailbox<v1::OutcomeQuery> queries;
  Mailbox<v1::LeaseRequest> lease_requests;

  // ---- what the hub asks ----
  Status may_join(const tree::Child&) override { return {}; }
  void child_joined(const tree::Child& child) override { joined.put(child.incarnation); }
  void child_left(NodeId child) override { left.put(child); }
  void members_changed(NodeId, const v1::MemberChange&) override {}
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity, v1::LeaseRequest request, std::string) override {
    lease_requests.put(std::move(request));
    v1::LeaseGrant grant;
    grant.set_epoch(5);
    grant.add_parents()->set_name("root");
    wire::to_proto(lineage_, grant.mutable_histories());
    if (signing_ != Signing::kNothing) grant.add_leases();
    co_return grant;
  }
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override {
    const bool is_late = opening_.late && head.round < opening_.round;
    if (head.lease != Epoch(5) || (head.round != opening_.round && !is_late)) {
      return Error{Code::kStale, "not this round"};
    }
    if (turns_away_) return Error{Code::kAlreadyExists, "counted already"};
    transfer::Terms terms;
    terms.layout = {opening_.value_count, opening_.plan.chunk_values};
    terms.integer_count = static_cast<std::size_t>(opening_.integer_count);
    terms.codec = kernels::make_codec(kernels::parse_codec(opening_.plan.codec).value()).value();
    terms.codec_name = opening_.plan.codec;
    terms.base = opening_.base.digest;
    terms.base_version = ModelVersion(opening_.round.value() - 1);  // whichever model a test has opened it on
    terms.value_abs_max = opening_.plan.value_abs_max;
    if (opening_.late) terms.late = std::make_shared<const round::Lateness>(*opening_.late);
    if (const std::shared_ptr<tree::ModelSlot> base = model(opening_.base)) {
      terms.schema = base->schema();
      terms.base_integers = base->integers();
    }
    return terms;
  }
  Result<transfer::Terms> admit(const transfer::PartialHead&) override {
    return Error{Code::kInternal, "no partials here"};
  }
  std::vector<SiteId> without(const transfer::PartialHead&) override { return {}; }
  void arrived(transfer::StagedArrival arrival) override { arrivals.put(std::move(arrival)); }
  void refused(RunId, RoundId, const round::MadeFrom&, const round::Refusal& refusal) override {
    refusals.put(refusal);
  }
  void declined(NodeId, const round::Decline& decline) override { declines.put(decline); }
  net::Awaitable<void> outcome_asked(NodeId, v1::OutcomeQuery query) override {
    queries.put(std::move(query));
    co_return;
  }
  std::shared_ptr<tree::ModelSlot> model(const round::ModelRef& ref) override {
    const auto found = models_.find(ref.version);
    return found == models_.end() ? nullptr : found->second;
  }

 private:
  wire::Order signed_opening() const {
    std::vector<SiteId> sites;
    for (const round::Participant& participant : opening_.participants) sites.push_back(participant.site);
    auto order = std::make_shared<v1::Signed>();
    order->set_body(wire::opening_body(opening_, sites, round::current_of(lineage_)));
    const Result<Signature> signature = identity::sign(own_.key, wire::kOpeningKind, as_byte_span(order->body()));
    EXPECT_TRUE(signature.ok());
    order->set_signature(wire::signature_to_proto(*signature));
    return order;
  }

  tree::TestRuntime runtime_{Role::kCoordinator};
  identity::Credentials own_;
  wire::Opening opening_;
  bool turns_away_ = false;
  Signing signing_ = Signing::kNothing;
  round::Lineage lineage_;
  std::map<ModelVersion, std::shared_ptr<tree::ModelSlot>> models_;
  tree::Hub hub_;
  std::uint16_t port_ = 0;
  std::future<void> running_;
};

}  // namespace fluvial::edge
