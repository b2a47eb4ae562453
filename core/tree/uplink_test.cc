// A node's uplink against a coordinator and an aggregator on loopback, that grant and die as the test says.
#include "core/tree/uplink.h"

#include <gtest/gtest.h>

#include <boost/asio/awaitable.hpp>
#include <deque>

#include "core/base/testing.h"
#include "core/identity/testing.h"
#include "core/net/deadline.h"
#include "core/net/listener.h"
#include "core/tree/hub.h"
#include "core/tree/process.h"
#include "core/wire/history_mapping.h"
#include "core/wire/mapping.h"

namespace fluvial::tree {
namespace {

constexpr NodeId kAggregator{2};
constexpr NodeId kUplinkSite{7};

// A parent that takes everybody; as the coordinator, grants what the test says.
class Parent final : public HubOwner {
 public:
  Parent(Runtime& runtime, const std::string& spill, std::shared_ptr<const identity::TlsContext> tls)
      : hub(runtime, *this, {.host = "127.0.0.1", .spill_folder = spill}, std::make_shared<identity::DenyList>()),
        port(*hub.open(identity::live(std::move(tls)))) {}

  Status may_join(const Child& child) override {
    return child.lease == stale ? Status{Error{Code::kStale, "come for a new lease"}} : Status{};
  }
  void child_joined(const Child& child) override {
    histories.push_back(child.history);
    shown.push_back(child.lease_shown ? child.lease_shown->body() : "");
  }
  void child_left(NodeId) override {}
  void members_changed(NodeId, const v1::MemberChange&) override {}
  net::Awaitable<Result<v1::LeaseGrant>> lease(identity::PeerIdentity, v1::LeaseRequest request, std::string) override {
    requests.push_back(request.unreachable());
    standings.push_back(request.standing());
    if (grants.size() > 1) grants.pop_front();
    co_return grants.front();
  }
  Result<transfer::Terms> admit(const transfer::UpdateHead&) override { return Error{Code::kStale, "no round"}; }
  Result<transfer::Terms> admit(const transfer::PartialHead&) override { return Error{Code::kStale, "no round"}; }
  std::vector<SiteId> without(const transfer::PartialHead&) override { return {}; }
  void arrived(transfer::StagedArrival) override {}
  void refused(RunId, RoundId, const round::MadeFrom&, const round::Refusal&) override {}
  void declined(NodeId, const round::Decline&) override {}
  net::Awaitable<void> outcome_asked(NodeId, v1::OutcomeQuery) override { co_return; }
  std::shared_ptr<ModelSlot> model(const round::ModelRef&) override { return nullptr; }

  std::deque<v1::LeaseGrant> grants{{}};  // after the first, which is replaced: one a request, the last again and again
  std::vector<std::uint32_t> requests;    // what each said of unreachable
  std::vector<v1::Standing> standings;
  std::vector<round::HistoryId> histories;  // of who joined
  std::vector<std::string> shown;           // their leases' statements
  Epoch stale;                              // whoever comes under it is sent away
  Hub hub;
  std::uint16_t port;
};

class UplinkTest : public testing::Test, public UplinkOwner {
 protected:
  explicit UplinkTest(const wire::Protocols& protocols = {})
      : process_(settings(), Role::kSite, files_, telemetry::null_logger()),
        up_(process_.runtime().strand),
        root_(pki_.credentials(Role::kCoordinator, NodeId(1), "root")),
        coordinator_key_(identity::PublicKey::of(root_.key)),
        coordinator_(process_.runtime(), folder_.path(), identity::TlsContext::member_server(root_).value()),
        eu_(pki_.credentials(Role::kAggregator, kAggregator, "eu")),
        aggregator_(process_.runtime(), folder_.path(), identity::TlsContext::member_server(eu_).value()) {
    process_.spawn("coordinator", coordinator_.hub.run());
    process_.spawn("aggregator", aggregator_.hub.run());
    UplinkOptions options;
    options.coordinator = {"127.0.0.1", coordinator_.port};
    options.incarnation = Incarnation(1);
    options.protocols = protocols;
    uplink_ = std::make_unique<Uplink>(
        process_.runtime(), *this, options,
        dial_over_tls(process_.runtime(), identity::live(pki_.member_client(Role::kSite, kUplinkSite, "hospital-a"))));
  }
  static config::CommonSettings settings() {
    config::CommonSettings settings;
    settings.metrics_listen = "off";
    settings.session.reconnect_delay_min_ms = 1;
    settings.session.reconnect_delay_max_ms = 20;
    return settings;
  }

  net::Awaitable<Result<round::Standing>> standing() override { co_return standing_; }
  net::Awaitable<Status> granted(round::Lineage lineage, Epoch lease) override {
    granted_.emplace_back(round::current_of(lineage), lease);
    const bool refuses = refused_ != round::HistoryId(0) && round::current_of(lineage) == refused_;
    co_return refuses ? Status{Error{Code::kFailedPrecondition, "an older history"}} : Status{};
  }
  void parent_up(const Lease& lease) override {
    parents_.push_back(lease.parent);
    up_.notify_all();
  }
  void parent_down(const Error&) override {}
  net::Awaitable<Status> from_parent(net::Frame) override { co_return Status{}; }

  v1::LeaseGrant grant(std::uint64_t epoch, std::vector<NodeId> parents) const {
    v1::LeaseGrant grant;
    grant.set_epoch(epoch);
    for (const NodeId parent : parents) {
      v1::Parent& named = *grant.add_parents();
      named.set_node(parent.value());
      named.set_name(parent == NodeId(0) ? "root" : "eu");
      if (parent != NodeId(0)) named.set_address("127.0.0.1:" + std::to_string(aggregator_.port));
    }
    return grant;
  }
  // Comes to the coordinator by another lease, and says that it could not reach its parent; nobody else heard of it.
  void is_not_taken_for_the_parent(const v1::LeaseGrant& wrong) {
    coordinator_.grants = {{}, wrong, grant(2, {NodeId(0)})};
    run([this, named = wrong.parents(0).node()]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it
      co_await is_up(1);
      EXPECT_EQ(parents_, std::vector<NodeId>{NodeId(0)});
      EXPECT_EQ(coordinator_.requests, (std::vector<std::uint32_t>{0, named}));
      EXPECT_TRUE(aggregator_.histories.empty()) << "it says nothing to a stranger";
      telemetry::Metrics& metrics = process_.runtime().metrics;
      EXPECT_EQ(metrics.counter("parent_connects_total", {{"result", "unauthenticated"}}).value(), 1);
    });
  }
  void run(std::function<net::Awaitable<void>()> scenario) {
    process_.spawn("uplink", uplink_->run());
    process_.spawn("scenario", to_the_end(std::move(scenario)));
    const Status ended = process_.run([this] {
      uplink_->stop();
      coordinator_.hub.stop();
      aggregator_.hub.stop();
    });
    EXPECT_TRUE(ended.ok());
    EXPECT_TRUE(finished_) << "the scenario did not reach its end";
  }
  net::Awaitable<void> to_the_end(std::function<net::Awaitable<void>()> scenario) {
    co_await scenario();
    finished_ = true;
    process_.request_stop();
  }
  net::Awaitable<void> is_up(std::size_t times) {
    while (parents_.size() < times) co_await up_.wait();
  }

  identity::TestPki pki_;
  TemporaryFolder folder_;
  store::PosixFileSystem files_;
  Process process_;
  net::AsyncSignal up_;
  identity::Credentials root_;
  identity::PublicKey coordinator_key_;
  Parent coordinator_;
  identity::Credentials eu_;
  Parent aggregator_;
  std::unique_ptr<Uplink> uplink_;
  std::vector<NodeId> parents_;
  round::Standing standing_;
  round::HistoryId refused_;
  std::vector<std::pair<round::HistoryId, Epoch>> granted_;
  bool finished_ = false;
};

TEST_F(UplinkTest, NamesTheParentThatItCannotReachAndGoesWhereItIsSent) {
  coordinator_.grants = {{}, grant(1, {kAggregator}), grant(1, {kAggregator}), grant(2, {NodeId(0)})};
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    aggregator_.hub.stop();  // and nobody listens there any more
    co_await is_up(2);
    const std::vector<NodeId> way{kAggregator, NodeId(0)};
    EXPECT_EQ(parents_, way);
    const std::vector<std::uint32_t> said{0, 0, kAggregator.value()};
    EXPECT_EQ(coordinator_.requests, said) << "a lost session alone says nothing: it is tried once more";
    coordinator_.hub.cut(kUplinkSite, {Code::kUnavailable, "cut by the test"});
    co_await is_up(3);
    EXPECT_EQ(coordinator_.requests.back(), 0u) << "what was unreachable once is not held against it";
    telemetry::Metrics& metrics = process_.runtime().metrics;
    const double up = metrics.counter("parent_connects_total", {{"result", "ok"}}).value();
    EXPECT_EQ(up, 3);
    EXPECT_GE(metrics.counter("reconnects_total").value(), 3) << "two that came up, and one in vain at least";
    EXPECT_EQ(metrics.gauge("connected").value(), 1);
  });
}

TEST_F(UplinkTest, TriesTheParentsOfALeaseInTheirOrder) {
  aggregator_.hub.stop();
  coordinator_.grants = {{}, grant(1, {kAggregator, NodeId(0)})};
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    EXPECT_EQ(parents_, std::vector<NodeId>{NodeId(0)});
    EXPECT_EQ(coordinator_.requests, std::vector<std::uint32_t>{0});
  });
}

TEST_F(UplinkTest, AParentThatKnowsOfANewerLeaseIsReachable) {
  aggregator_.stale = Epoch(1);
  coordinator_.grants = {{}, grant(1, {kAggregator}), grant(2, {kAggregator})};
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    const std::vector<std::uint32_t> said{0, 0};
    EXPECT_EQ(coordinator_.requests, said);
  });
}

TEST_F(UplinkTest, ShowsWhatItKnowsAndConnectsUnderAHistoryThatItTakes) {
  const round::HistoryId old(4);
  const round::HistoryId restored(5);
  const auto of = [this](round::HistoryId history, std::uint64_t epoch) {
    v1::LeaseGrant lease = grant(epoch, {NodeId(0)});
    wire::to_proto(round::Lineage{{history, Epoch(1), RunId(1), {}}}, lease.mutable_histories());
    return lease;
  };
  v1::LeaseGrant damaged = of(old, 3);
  damaged.mutable_histories(0)->set_id(0);
  coordinator_.grants = {{}, of(old, 2), damaged, of(restored, 4)};
  refused_ = old;
  standing_ = {round::HistoryId(3), Epoch(9), {{RunId(1), RoundId(7), true, false, {}}}};
  run([&]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    EXPECT_EQ(granted_, (std::vector<std::pair<round::HistoryId, Epoch>>{{old, Epoch(2)}, {restored, Epoch(4)}}));
    EXPECT_EQ(coordinator_.histories, std::vector<round::HistoryId>{restored});
    EXPECT_EQ(coordinator_.standings.size(), 3U);
    EXPECT_EQ(wire::from_proto(coordinator_.standings[0]).value(), standing_);
  });
}

TEST_F(UplinkTest, ShowsItsParentTheLeaseThatTheCoordinatorSigned) {
  v1::LeaseGrant lease = grant(1, {kAggregator});
  lease.mutable_parents(0)->set_key_sha256(wire::digest_to_proto(identity::PublicKey::of(eu_.key).id()));
  lease.add_leases()->set_body("what the coordinator says");
  coordinator_.grants = {{}, lease};
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    EXPECT_EQ(parents_, std::vector<NodeId>{kAggregator});
    EXPECT_EQ(aggregator_.shown, std::vector<std::string>{"what the coordinator says"});
    EXPECT_EQ(uplink_->lease().coordinator_key, coordinator_key_);
  });
}

TEST_F(UplinkTest, AnotherAggregatorAtTheParentsAddressIsToldNothing) {
  v1::LeaseGrant lease = grant(1, {NodeId(3)});
  lease.mutable_parents(0)->set_name("us");
  is_not_taken_for_the_parent(lease);
}

TEST_F(UplinkTest, AnAggregatorOfTheSameNumberAndAnotherNameIsToldNothing) {
  v1::LeaseGrant lease = grant(1, {kAggregator});
  lease.mutable_parents(0)->set_name("us");
  is_not_taken_for_the_parent(lease);
}

TEST_F(UplinkTest, TheParentsOldKeyIsToldNothing) {
  v1::LeaseGrant lease = grant(1, {kAggregator});
  lease.mutable_parents(0)->set_key_sha256(std::string(32, 'x'));
  is_not_taken_for_the_parent(lease);
}

TEST_F(UplinkTest, AGrantThatSignsSomeOfItsLeasesIsNone) {
  v1::LeaseGrant lease = grant(1, {kAggregator, NodeId(0)});
  lease.add_leases()->set_body("one of two");
  coordinator_.grants = {{}, lease, grant(2, {NodeId(0)})};
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    EXPECT_EQ(parents_, std::vector<NodeId>{NodeId(0)});
  });
}

class NextVersionsUplink : public UplinkTest {
 protected:
  NextVersionsUplink() : UplinkTest({wire::kProtocol, wire::kProtocol + 1}) {}
};

TEST_F(NextVersionsUplink, ConnectsToAParentOfThisVersion) {
  coordinator_.grants = {{}, grant(1, {kAggregator})};
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    co_await is_up(1);
    EXPECT_EQ(parents_, std::vector<NodeId>{kAggregator});
  });
}

}  // namespace
}  // namespace fluvial::tree
