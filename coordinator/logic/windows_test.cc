// Windows, at the root (docs/design/windows.md): when one commits, and what goes over into the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/logic/windows_test_support.h"

namespace fluvial::coordinator {
namespace {

using ::testing::ElementsAre;

TEST_F(RunWindows, OneCommitsAtItsGoal) {
  RunMachine machine = opened(async_start(2), 5);
  EXPECT_EQ(find<Finalise>(take(machine, of(1, 0, 0))), nullptr);
  const Effects second = take(machine, of(2, 0, 0));
  ASSERT_NE(find<Finalise>(second), nullptr);
  EXPECT_TRUE(find<Finalise>(second)->record.late.empty()) << "nobody is late for a window";
}

TEST_F(RunWindows, WithoutAGoalItIsHalfOfWhoTakesPart) {
  RunMachine machine = opened(async_start(0), 5);
  take(machine, of(1, 0, 0));
  EXPECT_EQ(find<Finalise>(take(machine, of(2, 0, 0))), nullptr);
  EXPECT_NE(find<Finalise>(take(machine, of(3, 0, 0))), nullptr);
}

TEST_F(RunWindows, ARoundWaitsForEverybody) {
  RunStart begin = async_start(1);
  begin.plan.mode = "rounds";
  RunMachine machine = opened(begin, 3);
  EXPECT_EQ(find<Finalise>(take(machine, of(1, 0, 0))), nullptr);
}

TEST_F(RunWindows, OneCommitsAfterItsTimeWithTheLeast) {
  RunMachine machine = opened(async_start(3), 5);
  take(machine, of(1, 0, 0));
  EXPECT_EQ(find<Finalise>(machine.tick(at(9s))), nullptr);
  EXPECT_NE(find<Finalise>(machine.tick(at(10s))), nullptr);
}

// Sites may train for longer than any deadline: nothing freezes, and nothing pauses.
TEST_F(RunWindows, WhereNobodyComesItAsksAgain) {
  RunMachine machine = opened(async_start(2), 3);
  for (int i = 1; i <= 5; ++i) {
    const Effects over = machine.tick(machine.hard_deadline());
    ASSERT_NE(find<RecordAttempt>(over), nullptr) << i;
    machine.attempt_recorded(machine.step(), machine.hard_deadline());
  }
  EXPECT_EQ(machine.status(), RunStatus::kRunning);
  take(machine, of(1, 0, 0));
  EXPECT_NE(find<Finalise>(take(machine, of(2, 0, 0))), nullptr);
}

TEST_F(RunWindows, WhatComesDuringACommitEntersTheNext) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  EXPECT_TRUE(go_on(machine).size() > 0);
  take(machine, of(1, 1, 1));
  EXPECT_TRUE(machine.admit(SiteId(2), Epoch(1), 10).ok()) << "while the window is committed";
  EXPECT_TRUE(machine.arrived(ArrivalId(7), Arrival{of(2, 1, 1), {}, {}}).empty());
  const Effects opened = go_on(machine);
  ASSERT_NE(find<Take>(opened), nullptr);
  EXPECT_EQ(find<Take>(opened)->arrival, ArrivalId(7));
  EXPECT_TRUE(machine.gather().is_counted(SiteId(2))) << "so its site is not asked for it";
  const Effects closed = machine.taken(ArrivalId(7), of(2, 1, 1), at(2s));
  ASSERT_NE(find<Finalise>(closed), nullptr);
  const Contribution& entry = *find<Finalise>(closed)->record.contributors.find(SiteId(2));
  EXPECT_EQ(entry.own_round(RoundId(3)), RoundId(2));
}

TEST_F(RunWindows, TheNextKeepsWhatIsStaged) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  machine.finalised(machine.step(), model(1), at(1s));
  const Effects over = machine.commit_recorded(machine.step(), at(1s));
  ASSERT_NE(find<RecordAttempt>(over), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(over)->goes_over);
}

TEST_F(RunWindows, WhatComesDuringARoundsCommitIsTooLate) {
  RunStart begin = async_start(1);
  begin.plan.mode = "rounds";
  begin.plan.late = "residual";
  RunMachine machine = opened(begin, 1);
  take(machine, of(1, 0, 0));
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(7), Arrival{of(2, 0, 0), {}, {}})), nullptr);
}

TEST_F(RunWindows, WhatWaitsIsNotLostSilently) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  machine.arrived(ArrivalId(7), Arrival{of(2, 0, 0), {}, {}});
  const Effects failed = machine.step_failed(machine.step(), {Code::kInternal, "no disk"});
  ASSERT_NE(find<Drop>(failed), nullptr) << "its site hears that it is to send it again";
  EXPECT_EQ(find<Drop>(failed)->arrival, ArrivalId(7));
}

// What an aggregator admitted when it knew an older model.
TEST_F(RunWindows, WhatWasAdmittedShortlyBeforeMayEnter) {
  RunMachine machine = opened(async_start(1), 3);
  for (std::uint64_t version = 0; version < 4; ++version) {
    take(machine, of(1, version, version));
    go_on(machine);
  }
  ASSERT_EQ(machine.attempt().round, RoundId(5));
  EXPECT_TRUE(machine.takes(RoundId(5), false));
  EXPECT_TRUE(machine.takes(RoundId(3), false));
  EXPECT_TRUE(machine.takes(RoundId(1), false)) << "an update may be from ten models before";
  EXPECT_FALSE(machine.takes(RoundId(0), false));
  EXPECT_FALSE(machine.takes(RoundId(6), false));
  EXPECT_TRUE(machine.admit(RoundId(3), AttemptId(9), Epoch(5), of(2, 2, 2)).ok()) << "whichever attempt";
  EXPECT_EQ(machine.admit(RoundId(3), AttemptId(9), Epoch(4), of(2, 2, 2)).error().code, Code::kStale);
  EXPECT_EQ(machine.admit(RoundId(3), AttemptId(9), Epoch(5), of(2, 1, 1)).error().code, Code::kStale);
  EXPECT_TRUE(machine.admit(RoundId(5), AttemptId(9), Epoch(5), of(2, 4, 4)).ok());
  EXPECT_EQ(machine.admit(RoundId(5), AttemptId(9), Epoch(4), of(2, 4, 4)).error().code, Code::kStale);
  const Effects old = machine.arrived(ArrivalId(7), Arrival{of(2, 1, 1), {}, {}});
  ASSERT_NE(find<Drop>(old), nullptr) << "three windows: more than drift_max";
  EXPECT_EQ(find<Drop>(old)->error.code, Code::kStale);
  const Effects later = machine.arrived(ArrivalId(8), Arrival{of(2, 4, 5), {}, {}});
  EXPECT_NE(find<Drop>(later), nullptr) << "nobody knows a newer model than the root";
  const Effects closed = take(machine, of(2, 2, 2));
  ASSERT_NE(find<Finalise>(closed), nullptr);
  EXPECT_EQ(find<Finalise>(closed)->record.contributors.find(SiteId(2))->staleness(), 0u) << "as it was admitted";
}

// Where the versions are those of the first model they do not tell the window.
TEST_F(RunWindows, WhatWasAdmittedOnTheFirstModelEntersTheFirstAlone) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  go_on(machine);
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(7), Arrival{of(2, 0, 0), {}, {}})), nullptr);
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(8), Arrival{of(2, 0, 1), {}, {}})), nullptr);
}

TEST_F(RunWindows, NothingCountsTwiceHoweverItDrifts) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  go_on(machine);
  take(machine, of(2, 1, 1));
  go_on(machine);
  const Effects again = machine.arrived(ArrivalId(7), Arrival{of(2, 1, 1), {}, {}});
  ASSERT_NE(find<Drop>(again), nullptr);
  EXPECT_EQ(find<Drop>(again)->error.code, Code::kAlreadyExists);
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(8), Arrival{of(2, 1, 2), {}, {}})), nullptr);
}

// A clone of a site contradicts what counted of it.
TEST_F(RunWindows, ARefusalOfWhatWasDecidedIsNoneOfTheNext) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(2, 0, 0));
  go_on(machine);
  machine.refused({SiteId(2), {Code::kConflict, "two contents"}, RoundId(1)}, at(1s));
  EXPECT_TRUE(machine.gather().refusals().empty());
  machine.refused({SiteId(3), {Code::kDataLoss, "not finite"}, RoundId(1)}, at(1s));
  EXPECT_EQ(machine.gather().refusals().size(), 1u) << "that was not decided";
}

TEST_F(RunWindows, TheScaleStaysAsLongAsThereIsRoom) {
  RunMachine machine = opened(async_start(1), 9);
  const int scale = machine.attempt().scale_bits;
  machine.sites_changed(sites(1), at(1s));
  take(machine, of(1, 0, 0));
  go_on(machine);
  EXPECT_EQ(machine.attempt().scale_bits, scale) << "sums of another scale do not go together";
  machine.sites_changed(sites(300), at(1s));
  take(machine, of(1, 1, 1));
  go_on(machine);
  EXPECT_LT(machine.attempt().scale_bits, scale);
}

// Its sum would be added at twice its worth.
TEST_F(RunWindows, ASumOfAnotherScaleDoesNotGoOver) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  go_on(machine);
  take(machine, of(1, 1, 1));
  Arrival partial{of(2, 1, 1), {}, {}};
  partial.scale_bits = machine.attempt().scale_bits;
  EXPECT_TRUE(machine.arrived(ArrivalId(7), partial).empty());
  machine.sites_changed(sites(300), at(1s));
  const Effects opened = go_on(machine);
  ASSERT_LT(machine.attempt().scale_bits, *partial.scale_bits);
  EXPECT_EQ(find<Take>(opened), nullptr);
  ASSERT_NE(find<Drop>(opened), nullptr);
  EXPECT_EQ(find<Drop>(opened)->error.code, Code::kStale);
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(8), partial)), nullptr);
  partial.scale_bits = machine.attempt().scale_bits;
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(9), partial)), nullptr);
}

TEST_F(RunWindows, OneOfASiteWaitsAtMost) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  go_on(machine);
  take(machine, of(1, 1, 1));
  machine.arrived(ArrivalId(7), Arrival{of({2, 3}, 1), {}, {}});
  EXPECT_EQ(machine.admit(SiteId(2), Epoch(1), 10).error().code, Code::kAlreadyExists);
  EXPECT_EQ(machine.admit(RoundId(2), AttemptId(1), Epoch(5), of(3, 1, 1)).error().code, Code::kUnavailable);
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(8), Arrival{of(2, 1, 1), {}, {}})), nullptr);
}

TEST_F(RunWindows, TakesWhatIsJustOldEnough) {
  for (const auto& [staleness, drift] : {std::pair(3U, 2U), std::pair(2U, 4U)}) {
    RunStart begin = async_start(1);
    begin.plan.staleness_max = staleness;
    begin.plan.async_drift_max = drift;
    begin.model.version = ModelVersion(9);
    begin.last_committed = RoundId(9);
    const RunMachine machine = opened(begin, 3);
    const std::uint64_t most = std::max(staleness, drift);
    EXPECT_TRUE(machine.takes(RoundId(10 - most), false));
    EXPECT_FALSE(machine.takes(RoundId(9 - most), false));
  }
}

TEST_F(RunWindows, AfterAFailedRecordTheSumBeginsAnew) {
  RunMachine machine = opened(async_start(1), 3);
  take(machine, of(1, 0, 0));
  machine.finalised(machine.step(), model(1), at(1s));
  machine.commit_recorded(machine.step(), at(1s));
  machine.step_failed(machine.step(), {Code::kInternal, "no disk"});
  machine.status_recorded(machine.step(), at(1s));
  const Effects again = resume(machine, at(2s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_FALSE(find<RecordAttempt>(again)->goes_over) << "what was taken for it is not kept for ever";
}

TEST_F(RunWindows, ARestartKeepsTheScale) {
  RunStart begin = async_start(1);
  begin.model.version = ModelVersion(4);
  begin.last_committed = RoundId(4);
  begin.scale_bits = 20;
  RunMachine machine = opened(begin, 3);
  EXPECT_EQ(machine.attempt().scale_bits, 20) << "the journal's reader knows which one a window has";
}

class BoundedWindows : public RunWindows {
 protected:
  static RunStart bounded_start() {
    RunStart begin = async_start(1);
    begin.plan.async_lead_max = 2;
    return begin;
  }
};

TEST_F(BoundedWindows, AFastSiteBeginsOnlySoFarAheadOfTheSlowest) {
  RunMachine machine = opened(bounded_start(), 2);
  for (std::uint64_t version = 0; version < 3; ++version) {
    EXPECT_THAT(participants(machine), ElementsAre(1, 2));
    take(machine, of(1, version, version));
    go_on(machine);
  }
  EXPECT_THAT(participants(machine), ElementsAre(2)) << "three ahead";
  take(machine, of(2, 0, 3));
  go_on(machine);
  EXPECT_THAT(participants(machine), ElementsAre(1, 2));
}

TEST_F(BoundedWindows, WhoIsGoneHoldsNobodyUp) {
  RunMachine machine = opened(bounded_start(), 3);
  std::map<SiteId, SiteInfo> two = sites(3);
  for (std::uint64_t version = 0; version < 3; ++version) {
    take(machine, of({1, 2}, version));
    if (version == 2) {
      two.erase(SiteId(3));
      machine.sites_changed(two, at(1s));
    }
    go_on(machine);
  }
  EXPECT_THAT(participants(machine), ElementsAre(1, 2));
  machine.sites_changed(sites(3), at(1s));
  take(machine, of({1, 2}, 3));
  go_on(machine);
  EXPECT_THAT(participants(machine), ElementsAre(1, 2, 3)) << "who comes back begins where the slowest is";
}

TEST_F(BoundedWindows, TheBoundGivesWayToTheQuorum) {
  RunStart begin = bounded_start();
  begin.plan.quorum = 2;
  begin.plan.async_goal = 2;
  RunMachine machine = opened(begin, 3);
  for (std::uint64_t version = 0; version < 3; ++version) {
    take(machine, of({1, 2}, version));
    go_on(machine);
  }
  EXPECT_THAT(participants(machine), ElementsAre(1, 3)) << "one of the two that are ahead is needed";
}

// Of two that are as far ahead, in another federation with the numbers exchanged.
TEST_F(BoundedWindows, WhoIsNeededForTheQuorumGoesByNames) {
  for (const std::uint32_t first : {1U, 2U}) {
    RunStart begin = bounded_start();
    begin.plan.quorum = 2;
    begin.plan.async_goal = 2;
    RunMachine machine(begin);
    machine.begin(at(0s));
    std::map<SiteId, SiteInfo> named = sites(3);
    for (auto& [site, info] : named) info.name_key = 100 + site.value();
    named.at(SiteId(first)).name_key = 7;
    machine.sites_changed(named, at(0s));
    machine.attempt_recorded(machine.step(), at(0s));
    for (std::uint64_t version = 0; version < 3; ++version) {
      take(machine, of({1, 2}, version));
      go_on(machine);
    }
    EXPECT_THAT(participants(machine), ElementsAre(first, 3));
  }
}

TEST_F(BoundedWindows, TheBoundGivesWayToTheLeastWeight) {
  RunStart begin = bounded_start();
  begin.plan.weight_min = 150;
  begin.plan.async_goal = 2;
  std::map<SiteId, SiteInfo> all = sites(3);
  RunMachine machine = opened(begin, 3);
  for (std::uint64_t version = 0; version < 3; ++version) {
    ContributorSet heavy;
    for (const std::uint32_t site : {1U, 2U}) {
      Contribution one{SiteId(site), Epoch(1), 80, {}, 0, {}};
      one.base = one.admitted = ModelVersion(version);
      ASSERT_TRUE(heavy.add(one).ok());
    }
    take(machine, heavy);
    go_on(machine);
  }
  EXPECT_THAT(participants(machine), ElementsAre(1, 3)) << "100 of the slowest, and 100 of one that is ahead";
}

// It is ahead, whatever became of the last thing that it sent.
TEST_F(BoundedWindows, WhoIsAheadWaitsAlsoWhenItsLastUpdateWasTurnedAway) {
  for (const Code code : {Code::kStale, Code::kResourceExhausted}) {
    RunMachine machine = opened(bounded_start(), 3);
    for (std::uint64_t version = 0; version < 2; ++version) {
      take(machine, of({1, 2}, version));
      go_on(machine);
    }
    machine.refused({SiteId(1), {code, "turned away"}}, at(1s));
    take(machine, of(2, 2, 2));
    go_on(machine);
    EXPECT_THAT(participants(machine), ElementsAre(3)) << "three windows have heard of both, and none of it";
  }
}

TEST_F(BoundedWindows, WhoDeclinesHoldsNobodyUp) {
  RunMachine machine = opened(bounded_start(), 2);
  for (std::uint64_t version = 0; version < 5; ++version) {
    machine.refused({SiteId(2), {Code::kUnavailable, "not now"}}, at(1s));
    take(machine, of(1, version, version));
    go_on(machine);
  }
  EXPECT_THAT(participants(machine), ElementsAre(1, 2));
}

TEST_F(BoundedWindows, WhoIsTooHeavyHoldsNobodyUp) {
  RunMachine machine(bounded_start());
  machine.begin(at(0s));
  std::map<SiteId, SiteInfo> three = sites(2);
  three[SiteId(3)] = {Epoch(1), round::kStaleWeightLimit};
  machine.sites_changed(three, at(0s));
  machine.attempt_recorded(machine.step(), at(0s));
  for (std::uint64_t version = 0; version < 5; ++version) {
    take(machine, of({1, 2}, version));
    go_on(machine);
  }
  EXPECT_THAT(participants(machine), ElementsAre(1, 2));
}

// It trains, or hangs, or lies: nothing would ever be committed without the one that is ahead.
TEST_F(BoundedWindows, TheBoundGivesWayWhenTheSlowestDoesNotComeInTime) {
  RunMachine machine = opened(bounded_start(), 2);
  for (std::uint64_t version = 0; version < 3; ++version) {
    take(machine, of(1, version, version));
    go_on(machine);
  }
  ASSERT_THAT(participants(machine), ElementsAre(2));
  machine.tick(machine.hard_deadline());
  EXPECT_THAT(participants(machine), ElementsAre(1, 2));
}

TEST_F(BoundedWindows, WhoDeclinesAWindowThatNothingComesIntoIsNotSlow) {
  RunMachine machine = opened(bounded_start(), 2);
  for (std::uint64_t version = 0; version < 3; ++version) {
    take(machine, of(1, version, version));
    go_on(machine);
  }
  for (int attempt = 0; attempt < 2; ++attempt) {
    machine.refused({SiteId(2), {Code::kUnavailable, "its worker is gone"}}, at(1s));
    machine.tick(machine.hard_deadline());
    machine.attempt_recorded(machine.step(), at(1s));
  }
  take(machine, of(1, 3, 3));
  go_on(machine);
  EXPECT_THAT(participants(machine), ElementsAre(1, 2)) << "four ahead, of whom two declines are counted";
}

TEST_F(RunWindows, WhoComesSeldomIsAStraggler) {
  RunMachine machine = opened(async_start(2), 3);
  for (std::uint64_t version = 0; version < 9; ++version) {
    const TimePoint now = at(std::chrono::seconds(version + 1));
    take(machine, of({1, version % 4 == 0 ? 3U : 2U}, version), now);
    go_on(machine);
  }
  ASSERT_EQ(machine.last_committed(), RoundId(9));
  EXPECT_TRUE(machine.pace().find(SiteId(3))->straggler);
  EXPECT_FALSE(machine.pace().find(SiteId(1))->straggler);
  EXPECT_FALSE(machine.pace().find(SiteId(2))->straggler);
}

TEST_F(RunWindows, APartialOfTheAttemptBeforeIsTaken) {
  RunMachine machine = opened(async_start(2), 3);
  machine.tick(machine.hard_deadline());
  machine.attempt_recorded(machine.step(), at(1s));
  ASSERT_EQ(machine.attempt().attempt, AttemptId(2));
  EXPECT_TRUE(machine.admit(RoundId(1), AttemptId(1), machine.attempt().epoch, of(1, 0, 0)).ok());
}

TEST(AsyncPlan, HasDefaultsOfItsOwn) {
  round::Plan plan;
  plan.name = "test";
  round::set_mode("async", &plan);
  EXPECT_TRUE(check_plan(plan).ok());
  EXPECT_TRUE(late_is_next(plan));
  EXPECT_EQ(plan.staleness_max, 10u);
  plan.late = "residual";
  EXPECT_FALSE(check_plan(plan).ok());
  plan.late = "next";
  plan.participants_fraction = 0.5;
  EXPECT_FALSE(check_plan(plan).ok());
  plan.participants_fraction = 1;
  plan.mode = "windows";
  EXPECT_EQ(check_plan(plan).error().message, "mode = 'windows': expected rounds or async");
}

}  // namespace
}  // namespace fluvial::coordinator
