// Windows, in a real federation: they commit at their goal, nobody waits for the slowest, and the models are those of
// the independent loop, bit for bit.
#include <gtest/gtest.h>

#include <set>

#include "core/round/fairness.h"
#include "tests/integration/gate.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

class WindowsTest : public FederationTest {
 protected:
  round::Plan async_plan(std::uint64_t windows, std::uint64_t goal) {
    round::Plan wanted = plan(windows);
    round::set_mode("async", &wanted);
    wanted.async_goal = goal;
    wanted.quorum = 1;
    wanted.soft_deadline = round::Milliseconds(30'000);
    wanted.hard_deadline = round::Milliseconds(60'000);
    return wanted;
  }
  struct Entry {
    std::uint64_t window;
    std::uint64_t own;
  };
  std::vector<Entry> entries_of(std::uint64_t run, const std::string& site) {
    std::vector<Entry> found;
    for (const cli::json::value& round : committed(run)) {
      for (const cli::json::value& entry : cli::array_member(round, "contributors")) {
        if (cli::text_member(entry, "name") != site) continue;
        found.push_back({cli::count_member(round, "round"), cli::count_member(entry, "own_round")});
      }
    }
    return found;
  }
};

// The slow site trains for as long as the fast one fills windows; what it brings is old, and in.
TEST_F(WindowsTest, NobodyWaitsForTheSlowest) {
  start(2, 0);
  RoundGate& gate = hold_from(1);
  add_worker(1);
  add_worker(2, gated(gate, 2));
  const std::uint64_t run = start_run(async_plan(40, 1), 3'000);
  wait_committed(run, 4);
  EXPECT_TRUE(entries_of(run, "site-2").empty());
  gate.open();
  wait_state(run, "done");
  const std::vector<Entry> slow = entries_of(run, "site-2");
  ASSERT_FALSE(slow.empty());
  for (const cli::json::value& round : committed(run)) {
    EXPECT_EQ(cli::count_member(round, "late"), 0U) << "nobody is late for a window";
  }
  EXPECT_EQ(slow.front().own, 1U) << "trained from the first model";
  EXPECT_GE(slow.front().window, 5U);
  expect_exact(run);
}

TEST_F(WindowsTest, BelowAggregators) {
  start(4, 2);
  for (std::uint32_t site = 1; site <= 4; ++site) add_worker(site);
  const std::uint64_t run = start_run(async_plan(20, 2), 3'000);
  wait_state(run, "done");
  expect_exact(run);
}

// Commits overtake the models on their way to the region, and its sites ask it for what it has not begun to fetch.
TEST_F(WindowsTest, BelowALineThatTakesLongerForAModelThanAWindowLasts) {
  TcpGate gate;
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  put_before_coordinator(gate, shape, "aggregator-1");
  start(std::move(shape));
  gate.set(Way::kDown, {.rate_bytes_per_s = 60'000});  // a fifth of a second for a model
  for (std::uint32_t site = 1; site <= 2; ++site) add_worker(site);
  const std::uint64_t run = start_run(async_plan(15, 1), 3'000);
  wait_state(run, "done");
  for (const char* const site : {"site-1", "site-2"}) EXPECT_FALSE(entries_of(run, site).empty()) << site;
  expect_exact(run);
}

TEST_F(WindowsTest, AcrossADeathOfEach) {
  start(4, 2);
  for (std::uint32_t site = 1; site <= 4; ++site) add_worker(site);
  const std::uint64_t run = start_run(async_plan(60, 2), 3'000);
  wait_committed(run, 5);
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_committed(run, 15);
  federation_->kill("aggregator-1");
  ASSERT_TRUE(federation_->restart("aggregator-1").ok());
  wait_committed(run, 25);
  federation_->kill("site-3");
  ASSERT_TRUE(federation_->restart("site-3").ok());
  wait_state(run, "done");
  expect_exact(run);
}

// Each update counts by its site's rate, and a new term of the coordinator goes on with the same rates.
TEST_F(WindowsTest, FairByRateAcrossADeathOfTheCoordinator) {
  start(3, 1);
  for (std::uint32_t site = 1; site <= 3; ++site) add_worker(site);
  round::Plan fair = async_plan(60, 1);
  fair.async_fairness = "rate";
  const std::uint64_t run = start_run(fair, 3'000);
  wait_committed(run, 20);
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_state(run, "done");
  expect_exact(run);
  std::set<double> shares;
  for (const cli::json::value& round : committed(run)) {
    for (const cli::json::value& entry : cli::array_member(round, "contributors")) {
      shares.insert(cli::number_member(entry, "share", 0));
    }
  }
  EXPECT_GT(shares.size(), 1U) << "sites that take turns are not the same in each window";
  EXPECT_EQ(*shares.begin(), 1.0 / round::kRateRatioMost);
}

// Everybody awaited and nobody late: the models of a run with a barrier.
TEST_F(WindowsTest, WithEverybodyAsTheGoalItIsARound) {
  start(3, 1);
  for (std::uint32_t site = 1; site <= 3; ++site) add_worker(site);
  const std::uint64_t windows = start_run(async_plan(5, 3), 3'000);
  wait_state(windows, "done");
  expect_exact(windows);
  for (const cli::json::value& round : committed(windows)) {
    EXPECT_EQ(cli::array_member(round, "contributors").size(), 3U);
    EXPECT_EQ(cli::count_member(round, "stale"), 0U);
  }
}

}  // namespace
}  // namespace fluvial::integration
