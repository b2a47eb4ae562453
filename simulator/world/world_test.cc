#include "simulator/world/world.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "simulator/world/test_support.h"
#include "simulator/world/weather.h"

namespace fluvial::simulator {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

TEST(Scheduler, RunsByTimeThenByOrder) {
  Scheduler scheduler;
  std::string order;
  scheduler.after(milliseconds(2), [&] { order += "c"; });
  scheduler.after(milliseconds(1), [&] {
    order += "a";
    scheduler.after(Duration::zero(), [&] { order += "b"; });
  });
  scheduler.after(milliseconds(2), [&] { order += "d"; });
  const EventId gone = scheduler.after(milliseconds(2), [&] { order += "x"; });
  EXPECT_TRUE(scheduler.cancel(gone));
  EXPECT_FALSE(scheduler.cancel(gone));
  scheduler.after(milliseconds(1), [&] { order += "y"; }, 3);
  scheduler.forget(3);
  scheduler.after(milliseconds(3), [&] { order += "e"; }, 3);
  while (scheduler.step(TimePoint(seconds(1)))) continue;
  EXPECT_EQ(order, "abcde");
  EXPECT_EQ(scheduler.executed(), 5u);
  EXPECT_EQ(scheduler.now(), TimePoint(seconds(1)));
  EXPECT_EQ(scheduler.waiting(), 0u);
}

TEST(Scheduler, StopsAtTheEndItIsGiven) {
  Scheduler scheduler;
  bool ran = false;
  scheduler.after(seconds(2), [&] { ran = true; });
  EXPECT_FALSE(scheduler.step(TimePoint(seconds(1))));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(scheduler.step(TimePoint(seconds(3))));
  EXPECT_TRUE(ran);
}

TEST(Action, KeepsWhatItHoldsUntilItIsGone) {
  auto token = std::make_shared<int>(1);
  struct Large {
    std::array<char, 200> bytes{};
    std::shared_ptr<int> token;
  };
  for (const bool large : {false, true}) {
    int calls = 0;
    Action first = large ? Action([&calls, l = Large{{}, token}] { calls += *l.token; })
                         : Action([&calls, token] { calls += *token; });
    Action second = std::move(first);
    EXPECT_FALSE(first);
    second();
    EXPECT_EQ(calls, 1);
    second = Action();
    EXPECT_EQ(token.use_count(), 1);
  }
}

TEST(HostClock, DriftsAndFindsItsOwnTimes) {
  Scheduler scheduler;
  HostClock clock(scheduler);
  const TimePoint begin = clock.now();
  clock.set_rate(1.01);
  const WallTime wall = clock.wall_now();
  const TimePoint due = begin + seconds(101);
  const TimePoint world = clock.world_time(due);
  EXPECT_NEAR(std::chrono::duration<double>(world.time_since_epoch()).count(), 100, 1e-6);
  while (scheduler.step(world)) continue;
  EXPECT_GE(clock.now(), due);
  EXPECT_LT(clock.now(), due + std::chrono::microseconds(1));
  EXPECT_EQ(clock.wall_now() - wall, milliseconds(100'000));
  clock.jump_wall(-std::chrono::hours(2));
  EXPECT_LT(clock.wall_now(), wall);
  EXPECT_GE(clock.now(), due) << "durations do not know of it";
}

TEST(Chance, StreamsAreTheirOwn) {
  const Chance chance(7);
  EXPECT_EQ(chance.stream("a").next(), Chance(7).stream("a").next());
  EXPECT_NE(chance.stream("a").next(), chance.stream("b").next());
  EXPECT_NE(chance.stream("a", 0).next(), chance.stream("a", 1).next());
  EXPECT_NE(chance.stream("a").next(), Chance(8).stream("a").next());
}

TEST(Disk, FailsAtTheRateItIsTold) {
  Disk disk(Rng(5), {std::chrono::microseconds(100)});
  disk.set_faults({.io_error = 0.05, .no_space = 0.05});
  int io = 0;
  int space = 0;
  const int count = 20'000;
  for (int i = 0; i < count; ++i) {
    const auto found = disk.files().exists("/x");
    if (!found.ok()) (found.error().code == Code::kUnavailable ? io : space) += 1;
    EXPECT_EQ(disk.take_latency(), std::chrono::microseconds(100));
  }
  EXPECT_NEAR(io, count * 0.05, 150);
  EXPECT_NEAR(space, count * 0.05, 150);
}

TEST(World, ADeadProcessDoesNothingMore) {
  Town town({});
  town.at(1).connect();
  town.run_for(milliseconds(100));
  bool ran = false;
  town.world.after(HostId(1), milliseconds(10), [&] { ran = true; });
  town.world.kill_for(HostId(1), Death::kProcess, seconds(1));
  EXPECT_TRUE(town.world.crash_here(HostId(1), "anywhere"));
  EXPECT_FALSE(town.at(1).ping(1)) << "it is still there, but dead";
  EXPECT_FALSE(town.world.disk(HostId(1)).files().exists("/").ok());
  town.world.after(HostId(1), milliseconds(10), [&] { ran = true; });
  town.run_for(milliseconds(500));
  EXPECT_EQ(town.world.process(HostId(1)), nullptr);
  EXPECT_FALSE(ran);
  EXPECT_TRUE(town.world.disk(HostId(1)).files().exists("/").ok());
}

TEST(World, WhatWasNotSyncedIsLostWithTheMachineAlone) {
  for (const Death death : {Death::kProcess, Death::kMachine}) {
    Town town({});
    store::FileSystem& files = town.world.disk(HostId(1)).files();
    {
      auto file = files.open("/f", store::OpenMode::kCreate).value();
      ASSERT_TRUE(file->write_at(0, as_byte_span("abc")).ok());
    }
    town.world.kill_for(HostId(1), death, seconds(1));
    town.run_for(seconds(2));
    EXPECT_EQ(files.exists("/f").value(), death == Death::kProcess);
  }
}

TEST(World, AMachineThatDiedInADiskOperationIsDeadAndComesBack) {
  Scenario scenario;
  scenario.faults.disk.crash = 1;
  scenario.faults.crash.down_max = seconds(1);
  Town town(scenario);
  town.world.disk(HostId(1)).set_faults({.crash = 1});
  EXPECT_FALSE(town.world.disk(HostId(1)).files().exists("/").ok());
  bool ran = false;
  town.world.after_disk(HostId(1), [&] { ran = true; });
  EXPECT_FALSE(town.world.is_up(HostId(1)));
  town.run_for(seconds(2));
  EXPECT_FALSE(ran);
  EXPECT_TRUE(town.world.is_up(HostId(1)));
  EXPECT_EQ(town.world.starts(HostId(1)), 2u);
}

TEST(World, CrashesComeAtTheRateOfTheScenario) {
  Scenario scenario;
  scenario.faults.crash.at_effect_site = 0.1;
  Town town(scenario);
  int crashes = 0;
  for (int i = 0; i < 2000; ++i) {
    EXPECT_FALSE(town.world.crash_here(kRoot, "effect"));
    if (town.world.crash_here(HostId(1), "effect")) ++crashes;
    if (!town.world.is_up(HostId(1))) town.run_for(std::chrono::minutes(1));
  }
  EXPECT_NEAR(crashes, 200, 50);
  town.world.set_faults_on(false);
  for (int i = 0; i < 200; ++i) EXPECT_FALSE(town.world.crash_here(HostId(1), "effect"));
}

TEST(Weather, EndsAndHeals) {
  Scenario scenario;
  scenario.faults.partition.per_minute = 100;
  scenario.faults.partition.lasts_max = seconds(100);
  scenario.faults.partition.flapping = 0.5;
  scenario.faults.crash.per_minute = 30;
  scenario.faults.network.half_open_per_minute = 30;
  scenario.faults.clock = {
      .skew_max = seconds(10), .jumps_per_minute = 30, .jump_max = seconds(10), .drift_ppm_max = 10};
  Town town(scenario);
  Weather weather(town.world);
  weather.begin();
  town.run_for(seconds(61));
  EXPECT_TRUE(weather.is_over());
  town.run_for(seconds(30));
  for (std::uint32_t host = 0; host < 3; ++host) ASSERT_TRUE(town.world.is_up(HostId(host)));
  std::uint64_t starts = 0;
  for (std::uint32_t host = 0; host < 3; ++host) starts += town.world.starts(HostId(host));
  EXPECT_GT(starts, 5u);
  town.heard[1].clear();
  town.at(1).connect();
  town.run_for(seconds(1));
  EXPECT_THAT(town.words(1), testing::ElementsAre("connected"));
}

std::string hash_of(std::uint64_t seed) {
  Scenario scenario;
  scenario.faults.network.loss = 0.3;
  scenario.faults.crash.per_minute = 30;
  Town town(scenario, seed);
  Weather weather(town.world);
  weather.begin();
  for (std::uint64_t i = 0; i < 50; ++i) {
    if (town.world.is_up(HostId(1))) {
      town.at(1).connect();
      town.run_for(seconds(1));
      if (town.world.is_up(HostId(1))) town.at(1).ping(i);
    }
    town.run_for(seconds(1));
  }
  return town.world.trace().hash();
}

TEST(Trace, IsTheSeeds) {
  EXPECT_EQ(hash_of(1), hash_of(1));
  EXPECT_NE(hash_of(1), hash_of(2));
}

TEST(Trace, KeepsTheLastEventsInWords) {
  Scheduler scheduler;
  Trace trace(scheduler, 2);
  trace.name(HostId(4), "site-4");
  trace.event(HostId(4), "first");
  trace.event(HostId(4), "second", 1, 2, [] { return std::string("more"); });
  trace.event(HostId(4), "third");
  EXPECT_THAT(trace.lines(), testing::ElementsAre("    0.000000 site-4 second: more", "    0.000000 site-4 third"));
  Trace silent(scheduler, 0);
  silent.event(HostId(4), "x", 0, 0, []() -> std::string { throw 1; });
  EXPECT_THAT(silent.lines(), testing::IsEmpty());
}

}  // namespace
}  // namespace fluvial::simulator
