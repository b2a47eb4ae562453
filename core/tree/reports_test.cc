// What a hub does with what its children report.
#include "core/tree/test_support.h"
#include "core/wire/report_mapping.h"

namespace fluvial::tree {
namespace {

class Reports : public HubTest {
 protected:
  static v1::Envelope report(std::uint32_t node) {
    round::NodeReport report;
    report.node = NodeId(node);
    report.doing = round::Doing::kTraining;
    return wire::to_envelopes({report})[0];
  }
  // What the owner is told next.
  net::Awaitable<round::NodeReport> heard() {
    while (owner_.reports.empty()) co_await signal_.wait();
    round::NodeReport first = std::move(owner_.reports.front());
    owner_.reports.erase(owner_.reports.begin());
    co_return first;
  }
  Reports() {
    owner_.on_reported = [this] { signal_.notify_all(); };
  }

  net::AsyncSignal signal_{process_.runtime().strand};
};

TEST_F(Reports, AParentSaysThatItTakesThem) {
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    const auto session = co_await connect(Role::kSite, 7, 1, 1, /*hello=*/false);
    session->post({hello(1, 1), {}});
    const Result<net::Frame> welcome = co_await receive(session);
    EXPECT_TRUE(welcome.ok() && welcome->header.welcome().takes_reports());
  });
}

TEST_F(Reports, TheOwnerHearsThemWithTheChildsClock) {
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    const auto session = co_await connect(Role::kSite, 7);
    round::NodeReport said;
    do {  // its clock is asked for meanwhile
      session->post({report(7), {}});
      said = co_await heard();
    } while (!said.clock);
    EXPECT_EQ(said.node, NodeId(7));
    EXPECT_EQ(said.doing, round::Doing::kTraining);
    EXPECT_LE(std::chrono::abs(said.clock->offset), said.clock->uncertainty) << "it is our own";
    EXPECT_GT(said.heard, TimePoint());
  });
}

TEST_F(Reports, AnAggregatorReportsOfOthersASiteDoesNot) {
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    const auto aggregator = co_await connect(Role::kAggregator, 2);
    aggregator->post({report(8), {}});
    EXPECT_EQ((co_await heard()).node, NodeId(8)) << "whether 8 is below it the owner looks";
    const auto site = co_await connect(Role::kSite, 7);
    site->post({report(8), {}});
    EXPECT_EQ((co_await end_of(site)).code, Code::kPermissionDenied);
    EXPECT_TRUE(owner_.reports.empty());
  });
}

TEST_F(Reports, OneThatCannotBeEndsTheSession) {
  run([this]() -> net::Awaitable<void> {  // NOLINT: to_the_end() holds it until it is done
    const auto session = co_await connect(Role::kSite, 7);
    v1::Envelope wrong = report(7);
    wrong.mutable_report()->mutable_nodes(0)->set_clock_uncertainty_ns(~0ull);
    session->post({std::move(wrong), {}});
    EXPECT_EQ((co_await end_of(session)).code, Code::kInvalidArgument);
  });
}

}  // namespace
}  // namespace fluvial::tree
