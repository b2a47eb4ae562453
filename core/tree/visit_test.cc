// A visit to a hub on loopback: what it shows, and that the hub forgets it.
#include "core/tree/visit.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/tree/test_support.h"

namespace fluvial::tree {
namespace {

class VisitTest : public HubTest {
 protected:
  // On a thread of its own, while the hub runs.
  Result<Visit> visit(std::optional<Role> role, std::shared_ptr<const identity::TlsContext> tls) {
    Result<Visit> met = Error{Code::kInternal, "not asked"};
    std::thread visitor;
    run([&]() -> net::Awaitable<void> {
      net::AsyncSignal back(process_.runtime().strand);
      bool is_back = false;
      visitor = std::thread([&] {
        met = visit_blocking({{"127.0.0.1", port_}, role}, std::move(tls), process_.runtime().session);
        net::asio::post(process_.runtime().strand, [&] {
          is_back = true;
          back.notify_all();
        });
      });
      while (!is_back) co_await back.wait();
    });
    visitor.join();
    return met;
  }
};

TEST_F(VisitTest, SeesThePeerAndIsNoChild) {
  const auto met = visit(Role::kCoordinator, pki_.member_client(Role::kSite, NodeId(7), "hospital-a"));
  ASSERT_TRUE(met.ok()) << met.error().message;
  EXPECT_EQ(met->peer, "coordinator 1 (root)");
  EXPECT_EQ(met->node, NodeId(1));
  EXPECT_GT(met->round_trip.count(), 0);
  ASSERT_TRUE(met->wall_offset.has_value()) << "both clocks are this machine's";
  EXPECT_LT(std::chrono::abs(*met->wall_offset), std::chrono::minutes(1));
  EXPECT_TRUE(owner_.joined.empty());
  EXPECT_TRUE(owner_.left.empty());
}

TEST_F(VisitTest, ExpectsTheRole) {
  const auto met = visit(Role::kAggregator, pki_.member_client(Role::kSite, NodeId(7), "hospital-a"));
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message.find("may not act as aggregator"), std::string::npos) << met.error().message;
}

TEST_F(VisitTest, AStrangerIsTurnedAway) {
  identity::TestPki other;
  const auto met = visit(Role::kCoordinator, other.member_client(Role::kSite, NodeId(7), "hospital-a"));
  ASSERT_FALSE(met.ok());
}

}  // namespace
}  // namespace fluvial::tree
