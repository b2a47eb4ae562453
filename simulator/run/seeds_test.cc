#include "simulator/run/seeds.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>

namespace fluvial::simulator {
namespace {

using std::chrono::milliseconds;

// The coordinator "commits" a round every 100 ms; what else it does is the test's.
class Ticker : public Process {
 public:
  Ticker(World& world, std::uint64_t* rounds) : world_(world), rounds_(rounds) {}
  void start() override { tick(); }
  void accepted(SessionId, HostId) override {}
  void connected(SessionId) override {}
  void received(SessionId, Frame) override {}
  void closed(SessionId, const Error&) override {}
  void writable(SessionId) override {}

 private:
  void tick() {
    if (world_.crash_here(kRoot, "tick")) return;
    world_.trace().event(kRoot, "tick", ++*rounds_);
    world_.after(kRoot, milliseconds(100), [this] { tick(); });
  }
  World& world_;
  std::uint64_t* rounds_;
};

struct Habits {
  std::uint64_t stops_after = ~std::uint64_t{0};  // rounds
  std::uint64_t bad_seed = ~std::uint64_t{0};
  std::atomic<int>* runs = nullptr;  // another hash each time
};

class Clockwork : public Inhabitants {
 public:
  Clockwork(World& world, Habits habits) : world_(world), habits_(habits) {
    world.install(kRoot, [this](World& w, HostId) { return std::make_unique<Ticker>(w, &rounds_); });
    if (habits.runs != nullptr) world.trace().event(kRoot, "chance", static_cast<std::uint64_t>((*habits.runs)++));
  }
  void check() override {
    if (rounds_ == 5 && world_.chance().seed() == habits_.bad_seed) world_.violate("five", "five rounds");
    rounds_ = std::min(rounds_, habits_.stops_after);
  }
  std::uint64_t rounds_committed() const override { return rounds_; }

 private:
  World& world_;
  Habits habits_;
  std::uint64_t rounds_ = 0;
};

Settle live(Habits habits) {
  return [habits](World& world) { return std::make_unique<Clockwork>(world, habits); };
}

ScenarioFile scenario() {
  return ScenarioFile::parse(R"(name = "clockwork"
[faults]
until_ms = [1000, 2000]
crash.at_effect_coordinator = 0.02
crash.down_max_ms = 300
)",
                             "s.toml")
      .value();
}

TEST(Seeds, DoNotDependOnThreads) {
  SeedsOptions options{.first_seed = 10, .seeds = 20, .twice = 20};
  const auto one = run_seeds(scenario(), live({}), options, {});
  options.threads = 4;
  const auto four = run_seeds(scenario(), live({}), options, {});
  ASSERT_TRUE(one.ok() && four.ok());
  EXPECT_EQ(one->seeds, 20u);
  EXPECT_EQ(one->again, 20u);
  EXPECT_EQ(one->trace_hash, four->trace_hash);
  EXPECT_EQ(one->events, four->events);
  EXPECT_THAT(one->failures, testing::IsEmpty());
  EXPECT_GT(one->rounds_committed, 20u * 10);
  options.first_seed = 11;
  EXPECT_NE(run_seeds(scenario(), live({}), options, {})->trace_hash, one->trace_hash);
}

TEST(Seeds, AFailureNamesItsSeedAndTellsWhatHappened) {
  const auto result = run_seeds(scenario(), live({.bad_seed = 7}), {.first_seed = 5, .seeds = 10}, {});
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->failures.size(), 1u);
  EXPECT_EQ(result->seeds, 3u) << "no further seed began";
  const SeedResult& failure = result->failures[0];
  EXPECT_EQ(failure.seed, 7u);
  ASSERT_EQ(failure.violations.size(), 1u);
  EXPECT_EQ(failure.violations[0].invariant, "five");
  EXPECT_THAT(failure.log.back(), testing::HasSubstr("coordinator violation: five: five rounds"));
  EXPECT_THAT(failure.log.front(), testing::HasSubstr("coordinator start"));
}

TEST(Seeds, WantOfProgressIsAViolation) {
  const auto result = run_seeds(scenario(), live({.stops_after = 3}), {.seeds = 1}, {});
  ASSERT_TRUE(result.ok());
  ASSERT_EQ(result->failures.size(), 1u);
  EXPECT_EQ(result->failures[0].violations[0].invariant, "progress");
}

TEST(Seeds, ASeedThatDisagreesWithItselfIsAViolation) {
  std::atomic<int> runs = 0;
  const auto result =
      run_seeds(scenario(), live({.runs = &runs}), {.first_seed = 5, .seeds = 4, .twice = 2, .failures_max = 9}, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->again, 2u);
  ASSERT_EQ(result->failures.size(), 2u) << "the first two are run again";
  EXPECT_EQ(result->failures[0].seed, 5u);
  EXPECT_EQ(result->failures[1].seed, 6u);
  EXPECT_EQ(result->failures[0].violations[0].invariant, "determinism");
}

TEST(Seeds, ARunEndsAtItsLimits) {
  const auto file = ScenarioFile::parse(
      "name = \"endless\"\n[faults]\nuntil_ms = 10000000\n[limits]\nevents = 50\nvirtual_ms = 100000\n", "s.toml");
  const auto result = run_seeds(*file, live({}), {.seeds = 1}, {});
  ASSERT_TRUE(result.ok());
  EXPECT_EQ(result->events, 50u);
}

}  // namespace
}  // namespace fluvial::simulator
