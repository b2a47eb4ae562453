// Fairness by rate, at the root (docs/design/windows.md): what an update counts for, and what a window is divided by.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/logic/windows_test_support.h"

namespace fluvial::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;

class FairWindows : public RunWindows {
 protected:
  static RunStart fair_start(std::uint64_t goal = 1) {
    RunStart begin = async_start(goal);
    begin.plan.rounds = 1000;
    begin.plan.async_fairness = "rate";
    return begin;
  }
  static std::uint32_t share_of(const RunMachine& machine, std::uint32_t site) {
    for (const round::Participant& one : machine.attempt().participants) {
      if (one.site == SiteId(site)) return one.share;
    }
    return 0;
  }
  static ContributorSet with_share(std::uint32_t site, std::uint64_t version, std::uint32_t share) {
    ContributorSet set;
    Contribution one = *of(site, version, version).find(SiteId(site));
    one.share = share;
    EXPECT_TRUE(set.add(one).ok());
    return set;
  }
  // Windows of site 1 alone, but each fourth of site 2.
  static void some_windows(RunMachine& machine, std::uint64_t count) {
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint32_t site = i % 4 == 3 ? 2 : 1;
      const std::uint64_t version = machine.last_committed().value();
      take(machine, with_share(site, version, share_of(machine, site)));
      go_on(machine);
    }
  }
};

TEST_F(FairWindows, TheOpeningSaysWhatEachUpdateCountsFor) {
  RunMachine machine = opened(fair_start(), 3);
  EXPECT_EQ(share_of(machine, 1), round::kLeastShare);
  some_windows(machine, 40);
  EXPECT_EQ(share_of(machine, 1), round::kLeastShare);
  // 30 of 40 windows, and 10 of the 37 since it first was: 32 * (30 / 40) / (10 / 37)
  EXPECT_EQ(share_of(machine, 2), 89U);
  EXPECT_EQ(share_of(machine, 3), round::kLeastShare) << "it was never in";
}

TEST_F(FairWindows, WithoutTheKeyEachCountsWhole) {
  RunMachine machine = opened(async_start(1), 2);
  EXPECT_EQ(share_of(machine, 1), round::kWholeFactor);
  const Effects closed = take(machine, of(1, 0, 0));
  EXPECT_EQ(find<Finalise>(closed)->divisor, (round::Divisor{10, 0}));
}

TEST_F(FairWindows, ASumIsDividedByWhatUpdatesWeighOnAverage) {
  RunMachine machine = opened(fair_start(/*goal=*/2), 3);
  ContributorSet first;
  EXPECT_TRUE(first.merge(with_share(1, 0, 32)).ok() && first.merge(with_share(2, 0, 32)).ok());
  EXPECT_EQ(find<Finalise>(take(machine, first))->divisor, (round::Divisor{2 * 10 * 32, round::kFactorBits}));
}

// Nobody sends a factor that the root has not named.
TEST_F(FairWindows, AnotherShareIsNotTaken) {
  RunMachine machine = opened(fair_start(), 2);
  some_windows(machine, 8);
  const std::uint32_t right = share_of(machine, 2);
  ASSERT_NE(right, round::kLeastShare);
  EXPECT_THAT(machine.miscounted(with_share(2, 8, right)), IsEmpty());
  for (const std::uint32_t wrong : {round::kLeastShare, right + 1, round::kWholeFactor}) {
    const ContributorSet one = with_share(2, 8, wrong);
    EXPECT_THAT(machine.miscounted(one), ElementsAre(SiteId(2))) << wrong;
    const Effects told = machine.arrived(ArrivalId(1), Arrival{one, {}, {}});
    ASSERT_NE(find<Drop>(told), nullptr) << wrong;
    EXPECT_EQ(find<Drop>(told)->error.code, Code::kStale) << "its site still has it, and sends it again";
  }
}

// Nor in a run that knows none: its probe would go with it, and it would count for less.
TEST_F(FairWindows, InAnyRunAShareIsOneThatWasNamed) {
  RunStart rounds = async_start(1);
  rounds.plan.mode = "rounds";
  RunMachine machine = opened(rounds, 2);
  EXPECT_EQ(find<Take>(machine.arrived(ArrivalId(1), Arrival{with_share(1, 0, 256), {}, {}})), nullptr);
  const round::AttemptRecord& open = machine.attempt();
  EXPECT_EQ(machine.admit(open.round, open.attempt, open.epoch, with_share(1, 0, 256)).error().code, Code::kStale)
      << "before anything of it is sent";
  EXPECT_TRUE(machine.admit(open.round, open.attempt, open.epoch, with_share(1, 0, round::kWholeFactor)).ok());
}

// The rates change while a partial travels.
TEST_F(FairWindows, WhatWasAdmittedBeforeKeepsItsShare) {
  RunMachine machine = opened(fair_start(), 3);
  some_windows(machine, 8);
  const std::uint32_t before = share_of(machine, 2);
  some_windows(machine, 2);
  ASSERT_NE(share_of(machine, 2), before);
  EXPECT_THAT(machine.miscounted(with_share(2, 8, before)), IsEmpty());
  EXPECT_THAT(machine.miscounted(with_share(2, 10, before)), ElementsAre(SiteId(2)));
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(1), Arrival{with_share(2, 8, before), {}, {}})), nullptr);
}

TEST_F(FairWindows, ANewTermGoesOnWithTheSameShares) {
  RunMachine machine = opened(fair_start(), 2);
  some_windows(machine, 12);
  RunStart again = fair_start();
  again.last_committed = RoundId(12);
  again.model = model(12);
  again.open = machine.attempt();
  for (round::Participant& one : again.open->participants) one.share = round::kWholeFactor;  // the journal has none
  for (std::uint64_t made = 1; made <= 12; ++made) {
    again.rates.committed(ModelVersion(made), with_share(made % 4 == 0 ? 2 : 1, made - 1, 32),
                          round::staleness_factors(10, 0.5));
  }
  RunMachine next = opened(std::move(again), 2);
  EXPECT_EQ(share_of(next, 1), share_of(machine, 1));
  EXPECT_EQ(share_of(next, 2), share_of(machine, 2));
}

}  // namespace
}  // namespace fluvial::coordinator
