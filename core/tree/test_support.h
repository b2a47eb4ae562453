// For the tests of this room: a hub on loopback, an owner that takes everything and remembers, and children that say
// what the test tells them to.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <boost/asio/co_spawn.hpp>
#include <boost/asio/use_awaitable.hpp>
#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "core/base/testing.h"
#include "core/digest/sha256.h"
#include "core/identity/testing.h"
#include "core/identity/verify.h"
#include "core/net/connector.h"
#include "core/tree/hub.h"
#include "core/tree/process.h"
#include "core/wire/mapping.h"
#include "core/wire/record_mapping.h"

namespace fluvial::tree {

inline constexpr std::uint64_t kValues = 600;
inline constexpr std::uint64_t kChunkValues = 256;

inline round::Schema schema() {
  return *round::Schema::make({{"w", round::DType::kF32, {500}}, {"b", round::DType::kF32, {100}}});
}

// Takes everything for round 1 of run 1, and remembers.
class FakeOwner final : public HubOwner {
 public:
  Status may_join(const Child&) override {
    if (on_may_join) on_may_join();
    return {};
  }
  void child_joined(const Child& child) override { joined.push_back(child.node); }
  void child_left(NodeId child) override { left.push_back(child); }
  void members_changed(NodeId, const v1::MemberChange&) override {}
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity, v1::LeaseRequest, std::string) override {
    v1::LeaseGrant grant;
    grant.set_epoch(3);
    grant.add_parents()->set_name("coordinator");
    co_return grant;
  }
  net::Awaitable<v1::RenewReply> renew(identity::PeerIdentity peer, v1::RenewRequest request, std::string) override {
    if (!on_renew) co_return v1::RenewReply();
    co_return on_renew(peer, request);
  }
  std::function<v1::RenewReply(const identity::PeerIdentity& peer, const v1::RenewRequest& request)> on_renew;
  Result<transfer::Terms> admit(const transfer::UpdateHead& head) override {
    if (head.round != RoundId(1)) return Error{Code::kStale, "not the open round"};
    if (counts_already) return Error{Code::kAlreadyExists, "counted already"};
    return terms();
  }
  Result<transfer::Terms> admit(const transfer::PartialHead&) override { return terms(); }
  std::vector<SiteId> without(const transfer::PartialHead&) override { return {}; }
  void arrived(transfer::StagedArrival arrival) override { arrivals.push_back(std::move(arrival)); }
  void refused(RunId, RoundId, const round::MadeFrom&, const round::Refusal& refusal) override {
    refusals.push_back(refusal);
  }
  void declined(NodeId, const round::Decline& decline) override { refusals.push_back(decline.refusal); }
  net::Awaitable<void> outcome_asked(NodeId, v1::OutcomeQuery) override {
    if (on_outcome_asked) on_outcome_asked();
    if (answering) co_await answering();
  }
  std::shared_ptr<ModelSlot> model(const round::ModelRef&) override { return slot; }
  void reported(NodeId, round::NodeReport report) override {
    reports.push_back(std::move(report));
    if (on_reported) on_reported();
  }

  static transfer::Terms terms() {
    transfer::Terms terms;
    terms.layout = {kValues, kChunkValues};
    terms.codec = *kernels::make_codec(*kernels::parse_codec("fp32"));
    terms.codec_name = "fp32";
    terms.value_abs_max = 100;
    terms.schema = std::make_shared<const round::Schema>(schema());
    terms.scale_bits = 20;
    return terms;
  }

  std::vector<NodeId> joined;
  std::vector<NodeId> left;
  std::vector<transfer::StagedArrival> arrivals;
  std::vector<round::Refusal> refusals;
  std::vector<round::NodeReport> reports;
  std::function<void()> on_reported;
  std::shared_ptr<ModelSlot> slot;
  bool counts_already = false;
  std::function<void()> on_may_join;
  std::function<void()> on_outcome_asked;
  std::function<net::Awaitable<void>()> answering;  // until an outcome is answered
};

class HubTest : public testing::Test {
 protected:
  explicit HubTest(const wire::Protocols& protocols = {}, Duration past_certificate_max = std::chrono::hours(1),
                   Role role = Role::kCoordinator)
      : process_(settings(), role, files_, telemetry::null_logger()) {
    HubOptions options;
    options.protocols = protocols;
    options.software = "fluvial test";
    options.host = "127.0.0.1";
    options.spill_folder = folder_.path();
    options.past_certificate_max = past_certificate_max;
    options.verify = [this](const std::string& pem) -> Result<identity::PeerIdentity> {
      FLUVIAL_ASSIGN(const std::vector<identity::Certificate> chain, identity::Certificate::chain_from_pem(pem));
      return identity::verify_chain(chain, pki_.authority().authorities(), process_.runtime().clock.wall_now(), {});
    };
    hub_ = std::make_unique<Hub>(process_.runtime(), owner_, options, deny_);
    port_ = *hub_->open(identity::live(pki_.member_server(Role::kCoordinator, NodeId(1), "root")));
    process_.spawn("hub", hub_->run());
  }
  static config::CommonSettings settings() {
    config::CommonSettings settings;
    settings.metrics_listen = "off";
    settings.compute_threads = 2;
    settings.io_threads = 2;  // sessions side by side
    return settings;
  }

  // Runs the scenario to its end.
  void run(std::function<net::Awaitable<void>()> scenario) {
    process_.spawn("scenario", to_the_end(std::move(scenario)));
    EXPECT_TRUE(process_.run([this] { hub_->stop(); }).ok());
    EXPECT_TRUE(finished_) << "the scenario did not reach its end";
    owner_.arrivals.clear();  // they count against the hub's budget
    owner_.on_outcome_asked = nullptr;
    owner_.slot.reset();  // its signal is the process'
  }
  net::Awaitable<void> to_the_end(std::function<net::Awaitable<void>()> scenario) {
    co_await scenario();
    finished_ = true;
    process_.request_stop();
  }

  static v1::Envelope hello(std::uint64_t lease, std::uint64_t incarnation) {
    v1::Envelope message;
    message.mutable_hello()->set_protocol_min(wire::kProtocol);
    message.mutable_hello()->set_protocol_max(wire::kProtocol);
    message.mutable_hello()->set_lease_epoch(lease);
    message.mutable_hello()->set_incarnation(incarnation);
    return message;
  }
  net::Awaitable<std::shared_ptr<net::Session>> connect(Role role, std::uint32_t node, std::uint64_t lease = 1,
                                                        std::uint64_t incarnation = 1, bool hello = true) {
    auto session = co_await net::connect(process_.runtime().strand, "127.0.0.1", port_,
                                         pki_.member_client(role, NodeId(node), "node-" + std::to_string(node)),
                                         process_.runtime().session);
    EXPECT_TRUE(session.ok());
    if (hello) {
      (*session)->post({this->hello(lease, incarnation), {}});
      const Result<net::Frame> welcome = co_await receive(*session);
      EXPECT_TRUE(welcome.ok() && welcome->header.has_welcome());
    }
    co_return *session;
  }
  static net::Awaitable<void> receive_into(std::shared_ptr<net::Session> session,
                                           std::optional<Result<net::Frame>>* out) {
    out->emplace(co_await session->receive());
  }
  static net::Awaitable<Result<net::Frame>> receive(std::shared_ptr<net::Session> session) {
    std::optional<Result<net::Frame>> out;
    co_await net::asio::co_spawn(session->executor(), receive_into(session, &out), net::asio::use_awaitable);
    co_return std::move(*out);
  }

  static v1::Envelope begin(std::uint32_t site, std::uint64_t round = 1) {
    v1::Envelope message;
    v1::UpdateBegin& begin = *message.mutable_update_begin();
    begin.mutable_key()->set_run(1);
    begin.mutable_key()->set_round(round);
    begin.mutable_key()->set_site(site);
    begin.set_weight(7);
    begin.set_codec("fp32");
    begin.set_value_count(kValues);
    begin.set_chunk_count(3);
    begin.set_base_sha256(wire::digest_to_proto(Digest{}));
    begin.set_probe(1);
    return message;
  }
  static SharedBytes chunk_bytes(const std::vector<float>& values, std::size_t index) {
    const std::size_t first = index * kChunkValues;
    const std::size_t count = std::min<std::size_t>(kChunkValues, values.size() - first);
    return SharedBytes::from(Buffer::copy_of(std::as_bytes(std::span(values).subspan(first, count))));
  }
  static void post_chunk(const std::shared_ptr<net::Session>& session, std::uint64_t index, SharedBytes bytes) {
    v1::Envelope message;
    message.mutable_update_chunk()->set_index(index);
    session->post({std::move(message), std::move(bytes)});
  }
  static void post_end(const std::shared_ptr<net::Session>& session, const Digest& digest) {
    v1::Envelope message;
    message.mutable_update_end()->set_sha256(wire::digest_to_proto(digest));
    session->post({std::move(message), {}});
  }
  static void post_update(const std::shared_ptr<net::Session>& session, std::uint32_t site,
                          const std::vector<float>& values) {
    session->post({begin(site), {}});
    for (std::size_t i = 0; i < 3; ++i) post_chunk(session, i, chunk_bytes(values, i));
    post_end(session, sha256(std::as_bytes(std::span(values))));
  }
  // Everything posted before has been looked at when this returns: a lease of another node is answered in order.
  net::Awaitable<v1::Receipt> next_receipt(std::shared_ptr<net::Session> session) {
    const Result<net::Frame> frame = co_await receive(std::move(session));
    EXPECT_TRUE(frame.ok() && frame->header.has_receipt()) << (frame.ok() ? "" : frame.error().to_string());
    co_return frame.ok() ? frame->header.receipt() : v1::Receipt();
  }
  // The session was ended by the hub, for this reason.
  net::Awaitable<Error> end_of(std::shared_ptr<net::Session> session) {
    const Result<net::Frame> frame = co_await receive(std::move(session));
    EXPECT_FALSE(frame.ok());
    co_return frame.ok() ? Error{} : frame.error();
  }

  TemporaryFolder folder_;
  identity::TestPki pki_;
  FakeOwner owner_;
  store::PosixFileSystem files_;
  Process process_;
  std::shared_ptr<identity::DenyList> deny_ = std::make_shared<identity::DenyList>();
  std::unique_ptr<Hub> hub_;
  std::uint16_t port_ = 0;
  bool finished_ = false;
};

}  // namespace fluvial::tree
