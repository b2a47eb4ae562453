// Late is next, at the root (docs/design/late.md).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>

#include "coordinator/logic/test_support.h"

namespace fluvial::coordinator {
namespace {

using ::testing::ElementsAre;

class LateRounds : public RunMachineTest {
 protected:
  static RunStart late_start() {
    RunStart begin = start();
    begin.plan.rounds = 9;
    begin.plan.late = "next";
    begin.plan.participants_fraction = 1;
    begin.plan.participants_min = 2;
    return begin;
  }
  static ContributorSet numbered(std::initializer_list<std::uint32_t> ids, std::uint64_t submission) {
    ContributorSet set;
    for (const std::uint32_t id : ids) {
      Contribution one{SiteId(id), Epoch(1), 10, {}, 0, {}};
      one.incarnation = Incarnation(1);
      one.submission = submission;
      EXPECT_TRUE(set.add(one).ok());
    }
    return set;
  }
  static ContributorSet of_version(std::initializer_list<std::uint32_t> ids, std::uint64_t base,
                                   std::uint64_t admitted) {
    ContributorSet set;
    for (const std::uint32_t id : ids) {
      Contribution one{SiteId(id), Epoch(1), 10, {}, 0, {}};
      one.base = ModelVersion(base);
      one.admitted = ModelVersion(admitted);
      EXPECT_TRUE(set.add(one).ok());
    }
    return set;
  }
  // Closes the open round with these sites, and opens the next one.
  static void close(RunMachine& machine, ContributorSet in, std::uint64_t version, TimePoint now) {
    in.admitted_fresh(ModelVersion(version - 1));
    EXPECT_NE(find<Take>(machine.arrived(ArrivalId(version), Arrival{in, {}, {}})), nullptr);
    machine.taken(ArrivalId(version), in, now);
    if (find<RecordCommit>(machine.finalised(machine.step(), model(version), now)) == nullptr) {
      machine.tick(now + 15s);
      EXPECT_NE(find<RecordCommit>(machine.finalised(machine.step(), model(version), now)), nullptr);
    }
    machine.commit_recorded(machine.step(), now);
    machine.attempt_recorded(machine.step(), now);
  }
  static round::ModelRef model(std::uint64_t version) {
    return {RunId(1), ModelVersion(version), {std::byte{static_cast<unsigned char>(version)}}, 40};
  }
  static std::vector<std::uint32_t> participants(const RunMachine& machine) {
    std::vector<std::uint32_t> ids;
    for (const round::Participant& one : machine.attempt().participants) ids.push_back(one.site.value());
    return ids;
  }
  RunMachine closing();
  RunMachine opened(RunStart begin, std::uint32_t count) {
    RunMachine machine(std::move(begin));
    machine.begin(at(0s));
    machine.sites_changed(sites(count), at(0s));
    machine.attempt_recorded(machine.step(), at(0s));
    return machine;
  }
};
TEST(RefusalsOfARound, NameWhoKeepsAnUpdateForALaterOne) {
  const std::vector<round::Refusal> refusals = {{SiteId(1), {Code::kStale, ""}},
                                                {SiteId(2), {Code::kDataLoss, ""}},
                                                {SiteId(3), {Code::kResourceExhausted, ""}},
                                                {SiteId(4), {Code::kUnavailable, ""}}};
  EXPECT_THAT(holding_an_update(refusals), ElementsAre(SiteId(1), SiteId(3)));
}

TEST_F(LateRounds, SaysWhichModelsAnUpdateMayBeFrom) {
  RunMachine machine = opened(late_start(), 3);
  EXPECT_TRUE(machine.lateness()->earlier.empty());
  close(machine, numbered({1, 2, 3}, 1), 1, at(1s));
  EXPECT_THAT(machine.lateness()->earlier, ElementsAre(start().model));
  close(machine, numbered({1, 2, 3}, 2), 2, at(2s));
  EXPECT_THAT(machine.lateness()->earlier, ElementsAre(model(1)));
  EXPECT_EQ(RunMachineTest::opened().lateness(), std::nullopt);
}

TEST_F(LateRounds, WhoWasLateTakesPartInTheNextRoundThoughItIsNotDrawn) {
  std::size_t not_drawn = 0;
  for (std::uint64_t seed = 1; seed <= 16; ++seed) {
    RunStart begin = late_start();
    begin.plan.participants_fraction = 0.5;
    begin.plan.quorum = 1;
    begin.plan.seed = seed;
    RunMachine machine = opened(begin, 4);
    const std::vector<std::uint32_t> first = participants(machine);
    ASSERT_EQ(first.size(), 2U);
    const std::uint32_t late = first[1];
    close(machine, numbered({first[0]}, 1), 1, at(1s));
    EXPECT_THAT(participants(machine), ::testing::Contains(late));
    EXPECT_LE(participants(machine).size(), 3U);
    RunStart without = begin;
    without.plan.late = "residual";
    RunMachine drawn = opened(without, 4);
    close(drawn, numbered({first[0]}, 1), 1, at(1s));
    EXPECT_EQ(participants(drawn).size(), 2U) << "only with late = next does it come on top";
    const std::vector<std::uint32_t> again = participants(drawn);
    if (std::ranges::find(again, late) == again.end()) ++not_drawn;
  }
  EXPECT_GT(not_drawn, 0U) << "or nothing was shown";
}

// Nobody is late: the participants are those of a run without the key.
TEST_F(LateRounds, WhoDeclinedIsNotCalledUndrawn) {
  RunStart begin = late_start();
  begin.plan.participants_fraction = 0.5;
  begin.plan.quorum = 1;
  RunStart without = begin;
  without.plan.late = "residual";
  RunMachine machine = opened(begin, 8);
  RunMachine drawn = opened(without, 8);
  const std::vector<std::uint32_t> first = participants(machine);
  ASSERT_EQ(participants(drawn), first);
  std::uint32_t in = 0;
  const Code codes[] = {Code::kFailedPrecondition, Code::kUnavailable, Code::kInternal};
  for (std::size_t i = 0; i < first.size(); ++i) {
    if (i == std::size(codes)) in = first[i];
    if (i >= std::size(codes)) continue;
    machine.refused({SiteId(first[i]), {codes[i], "no"}}, at(1s));
    drawn.refused({SiteId(first[i]), {codes[i], "no"}}, at(1s));
  }
  ASSERT_NE(in, 0U);
  close(machine, numbered({in}, 1), 1, at(1s));
  close(drawn, numbered({in}, 1), 1, at(1s));
  EXPECT_EQ(participants(machine), participants(drawn));
}

TEST_F(LateRounds, WhoseUpdateMayStillEnterIsCalled) {
  RunStart begin = late_start();
  begin.plan.participants_fraction = 0.5;
  begin.plan.quorum = 1;
  RunMachine machine = opened(begin, 4);
  const std::vector<std::uint32_t> first = participants(machine);
  machine.refused({SiteId(first[1]), {Code::kStale, "too old for this round"}}, at(1s));
  close(machine, numbered({first[0]}, 1), 1, at(1s));
  EXPECT_THAT(participants(machine), ::testing::Contains(first[1]));
}

TEST_F(LateRounds, WhatHasCountedIsTurnedAway) {
  RunMachine machine = opened(late_start(), 3);
  close(machine, numbered({1, 2, 3}, 7), 1, at(1s));
  const Effects again = machine.arrived(ArrivalId(50), Arrival{of_version({2}, 0, 1), {}, {}});
  ASSERT_NE(find<Drop>(again), nullptr);
  EXPECT_EQ(find<Drop>(again)->error.code, Code::kAlreadyExists);
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(51), Arrival{of_version({2}, 1, 1), {}, {}})), nullptr);
}

// Its site has dropped it by the commit's word, and kept the residual that is in it.
TEST_F(LateRounds, WhatWasRefusedAndDroppedIsTurnedAway) {
  RunMachine machine = opened(late_start(), 3);
  machine.refused({SiteId(3), {Code::kInvalidArgument, "made up"}}, at(1s));
  close(machine, numbered({1, 2}, 7), 1, at(1s));
  EXPECT_EQ(find<Drop>(machine.arrived(ArrivalId(50), Arrival{of_version({3}, 0, 1), {}, {}}))->error.code,
            Code::kAlreadyExists);
  machine.refused({SiteId(1), {Code::kStale, "not for what it holds"}}, at(2s));
  close(machine, of_version({2, 3}, 1, 1), 2, at(2s));
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(51), Arrival{of_version({1}, 1, 2), {}, {}})), nullptr);
}

TEST_F(LateRounds, ARefusalIsOfTheUpdateThatItSays) {
  RunStart begin = late_start();
  begin.plan.staleness_max = 2;
  RunMachine machine = opened(begin, 3);
  close(machine, numbered({1, 2}, 7), 1, at(1s));
  machine.refused({SiteId(3), {Code::kDataLoss, "damaged"}, RoundId(1)}, at(2s));
  close(machine, of_version({1, 2}, 1, 1), 2, at(2s));
  EXPECT_EQ(machine.gather().check_mark(SiteId(3), RoundId(1)).error().code, Code::kAlreadyExists);
  EXPECT_TRUE(machine.gather().check_mark(SiteId(3), RoundId(2)).ok());
}

TEST_F(LateRounds, ARestartKnowsWhatTheJournalKnows) {
  RunStart begin = late_start();
  begin.model = model(4);
  begin.last_committed = RoundId(4);
  begin.earlier = {model(3)};
  begin.late = {SiteId(3)};
  begin.marks = {{SiteId(1), RoundId(4)}};
  begin.plan.participants_fraction = 0.3;
  begin.plan.quorum = 1;
  RunMachine machine = opened(begin, 3);
  EXPECT_THAT(machine.lateness()->earlier, ElementsAre(model(3)));
  EXPECT_THAT(participants(machine), ::testing::Contains(3U));
  EXPECT_EQ(machine.gather().check_mark(SiteId(1), RoundId(4)).error().code, Code::kAlreadyExists);
}

TEST_F(LateRounds, WhoMayClaimMoreThanAnOldUpdateCanHaveTakesNoPart) {
  RunMachine machine(late_start());
  machine.begin(at(0s));
  std::map<SiteId, SiteInfo> heavy = sites(3);
  heavy[SiteId(2)].weight_max = round::kStaleWeightLimit;
  EXPECT_NE(find<RecordAttempt>(machine.sites_changed(heavy, at(0s))), nullptr) << "nobody else waits for it";
  EXPECT_THAT(participants(machine), ElementsAre(1U, 3U));
  EXPECT_TRUE(machine.is_too_heavy(SiteId(2)));
  EXPECT_FALSE(machine.is_too_heavy(SiteId(1)));
  RunMachine waits(late_start());
  waits.begin(at(0s));
  heavy[SiteId(3)].weight_max = round::kStaleWeightLimit;
  EXPECT_EQ(find<RecordAttempt>(waits.sites_changed(heavy, at(0s))), nullptr);
  EXPECT_THAT(waits.reason(), ::testing::HasSubstr("1 connected (without 2 of a maximum weight of 2^20 or more)"));
}

// Two of three are in, the round is over and being committed.
RunMachine LateRounds::closing() {
  RunMachine machine = opened(late_start(), 3);
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(1), Arrival{numbered({1, 2}, 1), {}, {}})), nullptr);
  machine.taken(ArrivalId(1), numbered({1, 2}, 1), at(1s));
  EXPECT_NE(find<Finalise>(machine.tick(at(10s))), nullptr);
  return machine;
}

TEST_F(LateRounds, AnUpdateThatIsWholeWhileItsRoundIsCommittedIsInTheNextOne) {
  RunMachine machine = closing();
  EXPECT_TRUE(machine.admit(SiteId(3), Epoch(1), 10).ok()) << "it may begin now, too";
  EXPECT_TRUE(machine.arrived(ArrivalId(2), Arrival{of_version({3}, 0, 0), {}, {}}).empty()) << "it waits";
  EXPECT_EQ(machine.admit(SiteId(3), Epoch(1), 10).error().code, Code::kAlreadyExists) << "nobody sends it twice";
  const Effects same = machine.arrived(ArrivalId(3), Arrival{of_version({3}, 0, 0), {}, {}});
  EXPECT_NE(find<Drop>(same), nullptr);
  machine.finalised(machine.step(), model(1), at(11s));
  EXPECT_TRUE(find<RecordAttempt>(machine.commit_recorded(machine.step(), at(11s)))->goes_over);
  const Effects open = machine.attempt_recorded(machine.step(), at(11s));
  ASSERT_NE(find<Take>(open), nullptr);
  EXPECT_EQ(find<Take>(open)->arrival, ArrivalId(2));
  EXPECT_EQ(find<Take>(open)->admitted_on, ModelVersion(1)) << "one round old, as if it had been sent into this one";
  machine.taken(ArrivalId(2), of_version({3}, 0, 1), at(11s));
  EXPECT_EQ(machine.gather().held().find(SiteId(3))->own_round(RoundId(2)), RoundId(1));
}

TEST_F(LateRounds, AnUpdateThatIsWholeWhileSitesAreMissingWaitsForThem) {
  RunMachine machine = closing();
  machine.sites_changed(sites(1), at(10s));
  machine.finalised(machine.step(), model(1), at(11s));
  machine.commit_recorded(machine.step(), at(11s));
  ASSERT_TRUE(machine.waits_for_sites());
  EXPECT_TRUE(machine.arrived(ArrivalId(2), Arrival{of_version({3}, 0, 0), {}, {}}).empty());
  EXPECT_EQ(machine.admit(SiteId(3), Epoch(1), 10).error().code, Code::kStale) << "what has not begun can wait";
  EXPECT_TRUE(find<RecordAttempt>(machine.sites_changed(sites(3), at(30s)))->goes_over);
  EXPECT_EQ(find<Take>(machine.attempt_recorded(machine.step(), at(30s)))->arrival, ArrivalId(2));
}

TEST_F(LateRounds, AnUpdateOnItsWayIsTakenByEachRoundThatItMayEnterAndASumByItsOwn) {
  RunStart begin = late_start();
  begin.plan.staleness_max = 2;
  RunMachine machine = opened(begin, 3);
  for (std::uint64_t round = 1; round <= 3; ++round) close(machine, numbered({1, 2}, round), round, at(15s));
  EXPECT_TRUE(machine.takes(RoundId(4), false));
  EXPECT_TRUE(machine.takes(RoundId(2), true));
  EXPECT_FALSE(machine.takes(RoundId(1), true)) << "more than staleness_max";
  EXPECT_FALSE(machine.takes(RoundId(3), false)) << "the region makes another";
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(9), Arrival{of_version({3}, 1, 3), {}, {}})), nullptr);
  RunMachine other = opened(begin, 3);
  for (std::uint64_t round = 1; round <= 3; ++round) close(other, numbered({1, 2}, round), round, at(15s));
  const Effects old = other.arrived(ArrivalId(9), Arrival{of_version({3}, 0, 3), {}, {}});
  ASSERT_NE(find<Drop>(old), nullptr) << "of round 1";
  EXPECT_EQ(find<Drop>(old)->error.code, Code::kStale) << "its site keeps it";
  EXPECT_FALSE(RunMachineTest::opened().takes(RoundId(0), true));
}

TEST_F(LateRounds, ASumThatComesWhileItsRoundIsCommittedIsTurnedAway) {
  RunMachine machine = closing();
  EXPECT_FALSE(machine.admit(RoundId(1), AttemptId(1), Epoch(5), of_version({3}, 0, 0)).ok());
  Arrival sum{of_version({3}, 0, 0), {}, {}};
  sum.scale_bits = 20;
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(2), sum)), nullptr);
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(3), Arrival{{}, {}, {SiteId(3)}})), nullptr);
}

TEST_F(LateRounds, WhatWaitsIsGivenBackWhenTheRunPauses) {
  RunMachine machine = closing();
  machine.arrived(ArrivalId(2), Arrival{of_version({3}, 0, 0), {}, {}});
  machine.finalised(machine.step(), model(1), at(11s));
  const Effects failed = machine.step_failed(machine.step(), {Code::kUnavailable, "the disk is full"});
  ASSERT_NE(find<Drop>(failed), nullptr);
  EXPECT_EQ(find<Drop>(failed)->arrival, ArrivalId(2));
}

}  // namespace
}  // namespace fluvial::coordinator
