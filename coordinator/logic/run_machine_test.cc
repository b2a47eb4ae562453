#include <gmock/gmock.h>

#include "coordinator/logic/pause_cause.h"
#include "coordinator/logic/test_support.h"
#include "core/aggregate/scale.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

TEST_F(RunMachineTest, WaitsForItsSitesAndSaysSo) {
  RunMachine machine(start());
  EXPECT_TRUE(machine.sites_changed(sites(2), at(0s)).empty());
  EXPECT_THAT(machine.reason(), HasSubstr("2 connected"));
  EXPECT_TRUE(machine.waits_for_sites());
}

TEST_F(RunMachineTest, PausesWhenItsPlanLeavesNoRoomForTheSum) {
  RunStart vast = start();
  vast.plan.value_abs_max = 0x1p100;
  RunMachine machine(vast);
  machine.begin(at(0s));
  const Effects paused = machine.sites_changed(sites(3), at(0s));
  ASSERT_NE(find<RecordStatus>(paused), nullptr);
  EXPECT_EQ(find<RecordStatus>(paused)->status, RunStatus::kPaused);
  EXPECT_EQ(pause_cause(find<RecordStatus>(paused)->reason), PauseCause::kPlan);
}

TEST_F(RunMachineTest, OpensRoundsOfRingAtTheScaleOfItsSteps) {
  RunStart narrow = start();
  narrow.plan.codec = "ring:bits=8,max=0.05,rounding=stochastic";
  RunMachine machine(narrow);
  const Effects record = machine.sites_changed(sites(3), at(0s));
  ASSERT_NE(find<RecordAttempt>(record), nullptr);
  EXPECT_EQ(find<RecordAttempt>(record)->record.scale_bits, 11) << "whole numbers of 2^-11, whatever the weights";
}

TEST_F(RunMachineTest, CommitsWhenAllAreInAndGoesOn) {
  RunMachine machine = opened();
  EXPECT_EQ(find<Finalise>(bring(machine, 1, {1, 2}, at(1s))), nullptr)
      << "quorum, but a third may come until the soft deadline";
  const Effects closing = bring(machine, 2, {3}, at(2s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_EQ(find<Finalise>(closing)->record.contributors.total_weight(), 30u);
  const Effects published = commit(machine, at(3s));
  ASSERT_NE(find<Publish>(published), nullptr);
  EXPECT_FALSE(find<Publish>(published)->last);
  ASSERT_NE(find<RecordAttempt>(published), nullptr);
  EXPECT_EQ(find<RecordAttempt>(published)->record.round, RoundId(2));
}

TEST_F(RunMachineTest, FromTheSoftDeadlineOnAQuorumIsEnough) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2}, at(1s));
  EXPECT_EQ(find<Finalise>(machine.tick(at(9s))), nullptr);
  const Effects closing = machine.tick(at(10s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_EQ(find<Finalise>(closing)->record.late.size(), 1u);
  const Effects late = machine.arrived(ArrivalId(9), Arrival{set_of({3}), {}, {}});
  ASSERT_NE(find<Drop>(late), nullptr);
  EXPECT_EQ(find<Drop>(late)->error.code, Code::kStale);
}

TEST_F(RunMachineTest, WhatIsBeingAddedAtTheDeadlineIsWaitedFor) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2}, at(1s));
  EXPECT_NE(find<Take>(machine.arrived(ArrivalId(2), Arrival{set_of({3}), {}, {}})), nullptr);
  EXPECT_TRUE(machine.tick(at(10s)).empty());
  const Effects closing = machine.taken(ArrivalId(2), set_of({3}), at(11s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_EQ(find<Finalise>(closing)->record.contributors.size(), 3u);
}

TEST_F(RunMachineTest, ARevokedSiteIsNotWaitedForAndOutOfTheNextAttempt) {
  const round::Refusal revoked{SiteId(1), {Code::kUnauthenticated, "site-1 was revoked"}};
  RunMachine machine = opened();
  machine.shut_out(revoked, at(1s));
  EXPECT_FALSE(machine.admit(SiteId(1), Epoch(1), 10).ok()) << "it had not come yet";
  EXPECT_NE(find<Finalise>(bring(machine, 1, {2, 3}, at(2s))), nullptr) << "nobody waits for it";

  RunMachine held = opened();
  bring(held, 1, {1}, at(1s));
  EXPECT_TRUE(held.shut_out(revoked, at(2s)).empty());
  EXPECT_TRUE(held.gather().is_counted(SiteId(1))) << "the sum cannot be without it";
  held.sites_changed({{SiteId(4), {Epoch(1), 100}}, {SiteId(2), {Epoch(1), 100}}}, at(2s));
  const Effects again = held.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(again)->sum_anew);
  ASSERT_EQ(find<RecordAttempt>(again)->record.participants.size(), 4u) << "one comes in its place";
  held.refused(revoked, at(20s));  // as for each attempt
  held.attempt_recorded(held.step(), at(20s));
  EXPECT_FALSE(held.admit(SiteId(1), Epoch(1), 10).ok());
  bring(held, 2, {2, 3, 4}, at(21s));
  const Effects committed = commit(held, at(22s));
  ASSERT_NE(find<Publish>(committed), nullptr);
  EXPECT_FALSE(find<Publish>(committed)->record.contributors.contains(SiteId(1)));
}

TEST_F(RunMachineTest, WhatARevokedSiteGaveCountsInTheAttemptThatClosesWithIt) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  machine.shut_out({SiteId(1), {Code::kUnauthenticated, "site-1 was revoked"}}, at(2s));
  const Effects closing = bring(machine, 2, {2, 3}, at(3s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_TRUE(find<Finalise>(closing)->record.contributors.contains(SiteId(1)));
}

TEST_F(RunMachineTest, ADeclineOfAnEarlierAttemptIsNotOneOfThis) {
  const Error failed{Code::kInternal, "out of memory"};
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  machine.tick(at(20s));
  machine.declined(AttemptId(1), {SiteId(3), failed}, at(20s));
  machine.attempt_recorded(machine.step(), at(20s));
  machine.declined(AttemptId(1), {SiteId(3), failed}, at(21s));
  EXPECT_TRUE(machine.admit(SiteId(3), Epoch(1), 10).ok()) << "this attempt asks it again";
  machine.declined(AttemptId(2), {SiteId(3), failed}, at(22s));
  EXPECT_FALSE(machine.admit(SiteId(3), Epoch(1), 10).ok());
  machine.declined(AttemptId(0), {SiteId(2), failed}, at(23s));
  EXPECT_FALSE(machine.admit(SiteId(2), Epoch(1), 10).ok()) << "of a site of an earlier version: of this attempt";
}

TEST_F(RunMachineTest, ARefusedSiteIsNotWaitedFor) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2}, at(1s));
  const Effects closing = machine.refused({SiteId(3), {Code::kDataLoss, "NaN"}}, at(2s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_EQ(find<Finalise>(closing)->record.late.size(), 0u);
}

TEST_F(RunMachineTest, WhenNobodyIsLeftToComeTheNextAttemptDoesNotWaitForTheDeadlines) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  EXPECT_TRUE(machine.refused({SiteId(2), {Code::kDataLoss, "NaN"}}, at(2s)).empty()) << "site 3 may still come";
  const Effects declined = machine.declined(AttemptId(1), {SiteId(3), {Code::kInternal, "out of memory"}}, at(3s));
  ASSERT_NE(find<SetTimer>(declined), nullptr);
  EXPECT_EQ(find<SetTimer>(declined)->at, at(5s)) << "deadlines.soft_min_ms: not as fast as they decline";
  EXPECT_EQ(find<RecordAttempt>(machine.tick(at(4s))), nullptr);
  EXPECT_NE(find<RecordAttempt>(machine.tick(at(5s))), nullptr);
  machine.attempt_recorded(machine.step(), at(5s));
  machine.declined(AttemptId(2), {SiteId(3), {Code::kInternal, "out of memory"}}, at(6s));
  machine.refused({SiteId(2), {Code::kDataLoss, "NaN"}}, at(7s));
  const Effects paused = machine.tick(at(10s));
  ASSERT_NE(find<RecordStatus>(paused), nullptr) << "attempts_max";
  EXPECT_EQ(find<RecordStatus>(paused)->absent, (std::vector{SiteId(2), SiteId(3)}));
}

TEST_F(RunMachineTest, WhoMayComeByAnotherWayIsWaitedForAfterAll) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  machine.refused({SiteId(2), {Code::kDataLoss, "NaN"}}, at(2s));
  machine.declined(AttemptId(1), {SiteId(3), {Code::kInternal, "out of memory"}}, at(3s));
  machine.leases_changed({{SiteId(3), Epoch(2)}});
  const Effects early = machine.tick(at(5s));
  EXPECT_EQ(find<RecordAttempt>(early), nullptr);
  ASSERT_NE(find<SetTimer>(early), nullptr);
  EXPECT_EQ(find<SetTimer>(early)->at, at(10s));
}

TEST_F(RunMachineTest, TheNextAttemptKeepsScaleParticipantsAndWhatIsIn) {
  RunMachine machine = opened();
  const round::AttemptRecord first = machine.attempt();
  bring(machine, 1, {1}, at(1s));
  EXPECT_EQ(find<SetTimer>(machine.tick(at(10s)))->at, at(20s));
  const Effects again = machine.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_FALSE(find<RecordAttempt>(again)->sum_anew);
  round::AttemptRecord expected = first;
  expected.attempt = AttemptId(2);
  EXPECT_EQ(find<RecordAttempt>(again)->record, expected);
  machine.attempt_recorded(machine.step(), at(20s));
  EXPECT_EQ(machine.gather().counted(), std::vector{SiteId(1)});
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(1), Epoch(5), set_of({2})).error().code, Code::kStale) << "fenced";
  EXPECT_TRUE(machine.admit(RoundId(1), AttemptId(2), Epoch(5), set_of({2})).ok());
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(2), Epoch(4), set_of({2})).error().code, Code::kStale);
}

TEST_F(RunMachineTest, ForWhomItWaitedInVainAnotherSiteTakesPartFromTheNextAttemptOn) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  std::map<SiteId, SiteInfo> now_here = sites(7);
  now_here.erase(SiteId(2));
  now_here.erase(SiteId(3));
  EXPECT_EQ(find<RecordAttempt>(machine.sites_changed(now_here, at(2s))), nullptr) << "an attempt's are fixed";
  const Effects again = machine.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  const round::AttemptRecord record = find<RecordAttempt>(again)->record;
  EXPECT_EQ(record.scale_bits, machine.attempt().scale_bits);
  ASSERT_EQ(record.participants.size(), 5u) << "two for two";
  for (std::size_t i = 0; i < 3; ++i) EXPECT_EQ(record.participants[i].site, SiteId(static_cast<std::uint32_t>(i + 1)));
  machine.attempt_recorded(machine.step(), at(20s));
  const SiteId fourth = record.participants[3].site;
  EXPECT_GT(fourth, SiteId(3));
  EXPECT_EQ(find<Finalise>(bring(machine, 2, {fourth.value()}, at(21s))), nullptr) << "others may still come";
  EXPECT_TRUE(machine.gather().is_counted(SiteId(1)));
  EXPECT_TRUE(machine.admit(SiteId(2), Epoch(1), 10).ok()) << "who was replaced counts if it comes";
  const Effects closing = machine.tick(at(30s));
  ASSERT_NE(find<Finalise>(closing), nullptr) << "a quorum of which two never came back";
  EXPECT_EQ(find<Finalise>(closing)->record.contributors.total_weight(), 20u);
  EXPECT_EQ(find<Finalise>(closing)->record.late.size(), 3u);
}

TEST_F(RunMachineTest, ARoundWhoseParticipantsAreAllGoneGoesOnWithOthersOnceResumed) {
  RunMachine machine = opened();
  machine.sites_changed({}, at(1s));
  machine.tick(at(20s));
  machine.attempt_recorded(machine.step(), at(20s));
  machine.tick(at(40s));
  machine.status_recorded(machine.step(), at(40s));
  ASSERT_EQ(machine.status(), RunStatus::kPaused);
  std::map<SiteId, SiteInfo> others = sites(6);
  for (const std::uint32_t gone : {1U, 2U, 3U}) others.erase(SiteId(gone));
  machine.sites_changed(others, at(41s));
  const Effects resumed = resume(machine, at(42s));
  ASSERT_NE(find<RecordAttempt>(resumed), nullptr);
  EXPECT_EQ(find<RecordAttempt>(resumed)->record.participants.size(), 6u);
  machine.attempt_recorded(machine.step(), at(42s));
  bring(machine, 1, {4, 5, 6}, at(43s));
  EXPECT_NE(find<Finalise>(machine.tick(at(52s))), nullptr);
}

TEST_F(RunMachineTest, NobodyIsCalledForWhomTheSumHasNoRoomAtItsScale) {
  RunStart tight = start();
  tight.plan.value_abs_max = 0x1p40;  // so that the weights decide the scale, not the plan's fraction bits
  RunMachine machine(tight);
  machine.sites_changed(sites(3), at(0s));
  machine.attempt_recorded(machine.step(), at(0s));
  std::map<SiteId, SiteInfo> more = sites(5);
  more[SiteId(4)].weight_max = 1 << 20;
  machine.sites_changed(more, at(1s));
  const Effects again = machine.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  const round::AttemptRecord& record = find<RecordAttempt>(again)->record;
  std::uint64_t weight_sum = 0;
  for (const round::Participant& one : record.participants) {
    EXPECT_NE(one.site, SiteId(4)) << "one heavy site would need another scale";
    weight_sum += one.weight_max;
  }
  EXPECT_EQ(aggregate::scale_for(tight.plan, weight_sum).value(), record.scale_bits);
}

TEST_F(RunMachineTest, TheScaleLeavesRoomForTheProbeOfAHeavySite) {
  RunStart small = start();
  small.plan.value_abs_max = 0.1;
  RunMachine machine(small);
  std::map<SiteId, SiteInfo> heavy = sites(3);
  for (auto& [site, info] : heavy) info.weight_max = 5'000'000;
  const Effects record = machine.sites_changed(heavy, at(0s));
  ASSERT_NE(find<RecordAttempt>(record), nullptr);
  EXPECT_EQ(find<RecordAttempt>(record)->record.scale_bits, 62 - 24) << "15'000'000 times the probe's 1";
}

// The scale was recorded by a version that made it from value_abs_max alone. Its sums stopped the process, so nothing
// was committed, and the sites have all that they sent.
TEST_F(RunMachineTest, ARecordedScaleWithoutRoomForTheProbeIsLoweredWhenTheRoundOpensAgain) {
  RunStart before = start();
  before.plan.value_abs_max = 0.1;
  before.open = {RunId(1), RoundId(1), AttemptId(3), Epoch(4), {}, 40, before.model};
  for (std::uint32_t id = 1; id <= 3; ++id) before.open->participants.push_back({SiteId(id), Epoch(1), 5'000'000});
  RunMachine machine(before);
  const Effects begun = machine.begin(at(0s));
  ASSERT_NE(find<RecordAttempt>(begun), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(begun)->sum_anew);
  const round::AttemptRecord& record = find<RecordAttempt>(begun)->record;
  EXPECT_EQ(record.scale_bits, 38);
  EXPECT_EQ(record.attempt, AttemptId(4));
  EXPECT_EQ(record.epoch, Epoch(5)) << "of this term, in which nothing is summed yet";
  EXPECT_EQ(record.participants, before.open->participants);
}

TEST_F(RunMachineTest, ARecordedScaleWithRoomStays) {
  RunStart before = start();
  before.plan.value_abs_max = 0.1;
  before.open = {RunId(1), RoundId(1), AttemptId(3), Epoch(4), {{SiteId(1), Epoch(1), 4'000'000}}, 40, before.model};
  RunMachine machine(before);
  EXPECT_EQ(find<RecordAttempt>(machine.begin(at(0s)))->record.scale_bits, 40);
}

TEST_F(RunMachineTest, WhoIsTooHeavyIsCalledInNobodysPlace) {
  for (std::uint32_t fits = 4; fits <= 20; ++fits) {
    RunStart tight = start();
    tight.plan.value_abs_max = 0x1p40;
    RunMachine machine(tight);
    std::map<SiteId, SiteInfo> first = sites(3);
    first[SiteId(3)].weight_max = 1;  // so that there is room for another
    machine.sites_changed(first, at(0s));
    machine.attempt_recorded(machine.step(), at(0s));
    bring(machine, 1, {1}, at(1s));
    std::map<SiteId, SiteInfo> all = sites(20);
    for (auto& [site, info] : all) info.weight_max = site == SiteId(fits) ? 1 : 1 << 20;
    machine.sites_changed(all, at(2s));
    const Effects again = machine.tick(at(20s));
    ASSERT_NE(find<RecordAttempt>(again), nullptr);
    EXPECT_EQ(find<RecordAttempt>(again)->record.participants.back().site, SiteId(fits));
    EXPECT_EQ(find<RecordAttempt>(again)->record.participants.size(), 4u);
  }
}

TEST_F(RunMachineTest, AMovedSiteCountsUnderItsNewLeaseAloneUnlessItIsIn) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  const Effects moved = machine.leases_changed({{SiteId(1), Epoch(6)}, {SiteId(2), Epoch(7)}, {SiteId(3), Epoch(1)}});
  ASSERT_NE(find<TellMoved>(moved), nullptr);
  EXPECT_EQ(find<TellMoved>(moved)->sites, (std::vector{SiteId(1), SiteId(2)}));
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(1), Epoch(5), set_of({2})).error().code, Code::kStale)
      << "its old parent is fenced";
  EXPECT_TRUE(machine.admit(SiteId(2), Epoch(7), 10).ok());
  EXPECT_EQ(machine.admit(SiteId(1), Epoch(6), 10).error().code, Code::kAlreadyExists) << "in, and it stays in";
  EXPECT_EQ(machine.gather().without(set_of({1, 2, 3})), (std::vector{SiteId(1), SiteId(2)}));
  EXPECT_TRUE(machine.leases_changed({{SiteId(2), Epoch(7)}}).empty());
  machine.tick(at(10s));
  const Effects again = machine.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_EQ(find<RecordAttempt>(again)->record.participants[1].lease, Epoch(7)) << "as the next attempt records it";
}

TEST_F(RunMachineTest, WhatIsInTheSumNeedNotBeKept) {
  RunMachine machine = opened();
  const Effects taken = bring(machine, 1, {1}, at(1s));
  ASSERT_NE(find<Release>(taken), nullptr);
  EXPECT_EQ(find<Release>(taken)->arrival, ArrivalId(1));
}

TEST_F(RunMachineTest, ARestartTriesTheOpenRoundAgainAsItWas) {
  RunMachine before = opened();
  RunStart again = start();
  again.open = before.attempt();
  again.epoch = Epoch(6);
  RunMachine machine(again);
  const Effects effects = machine.begin(at(100s));
  ASSERT_NE(find<RecordAttempt>(effects), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(effects)->sum_anew) << "the sum was lost with the process";
  EXPECT_EQ(find<RecordAttempt>(effects)->record.attempt, AttemptId(2));
  EXPECT_EQ(find<RecordAttempt>(effects)->record.participants, before.attempt().participants);
  EXPECT_EQ(find<RecordAttempt>(effects)->record.epoch, Epoch(6));
}

TEST_F(RunMachineTest, AfterARestartNobodyIsCalledBeforeItWasWaitedForTheOthers) {
  RunStart again = start();
  again.open = opened().attempt();
  again.status = RunStatus::kPaused;
  RunMachine machine(again);
  machine.begin(at(100s));
  machine.sites_changed(sites(6), at(101s));
  const Effects resumed = resume(machine, at(102s));
  ASSERT_NE(find<RecordAttempt>(resumed), nullptr);
  EXPECT_EQ(find<RecordAttempt>(resumed)->record.participants, again.open->participants);
}

TEST_F(RunMachineTest, ASumThatADiskSpoiltIsGivenUpAndEverybodyIsAskedAgain) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}});
  const Error disk{Code::kUnavailable, "the disk failed"};
  const Effects failed = machine.take_failed(ArrivalId(2), disk, at(2s));
  ASSERT_NE(find<Drop>(failed), nullptr);
  EXPECT_EQ(find<Drop>(failed)->arrival, ArrivalId(2));
  EXPECT_EQ(find<Drop>(failed)->error, disk);
  ASSERT_NE(find<RecordAttempt>(failed), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(failed)->sum_anew) << "the sum starts at zero";
  EXPECT_EQ(find<RecordAttempt>(failed)->record.attempt, AttemptId(2));
  EXPECT_EQ(find<RecordAttempt>(failed)->record.round, RoundId(1));
  machine.attempt_recorded(machine.step(), at(2s));
  EXPECT_TRUE(machine.gather().counted().empty());
  const Effects closing = bring(machine, 3, {1, 2, 3}, at(3s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_EQ(find<Finalise>(closing)->record.contributors.size(), 3u);
  EXPECT_TRUE(find<Finalise>(closing)->record.refusals.empty());
}

TEST_F(RunMachineTest, ASumThatIsSpoiltWhileTheNextAttemptIsRecordedIsGivenUpOnceItIs) {
  RunMachine recording = opened();
  ASSERT_NE(find<RecordAttempt>(recording.tick(at(20s))), nullptr);
  recording.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}});
  EXPECT_EQ(find<RecordAttempt>(recording.take_failed(ArrivalId(1), {Code::kUnavailable, "disk"}, at(21s))), nullptr);
  const Effects recorded = recording.attempt_recorded(recording.step(), at(22s));
  ASSERT_NE(find<RecordStatus>(recorded), nullptr) << "its two attempts are used up";
  EXPECT_EQ(find<RecordStatus>(recorded)->status, RunStatus::kPaused);
}

TEST_F(RunMachineTest, ADiskThatGoesOnSpoilingTheSumPausesTheRunAndIsNamed) {
  RunMachine machine = opened();
  const Error disk{Code::kUnavailable, "the disk that updates wait on (/spill) failed"};
  machine.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}});
  ASSERT_NE(find<RecordAttempt>(machine.take_failed(ArrivalId(1), disk, at(1s))), nullptr);
  machine.attempt_recorded(machine.step(), at(1s));
  machine.arrived(ArrivalId(2), Arrival{set_of({1}), {}, {}});
  const Effects failed = machine.take_failed(ArrivalId(2), disk, at(2s));
  ASSERT_NE(find<RecordStatus>(failed), nullptr);
  EXPECT_EQ(find<RecordStatus>(failed)->status, RunStatus::kPaused);
  EXPECT_THAT(find<RecordStatus>(failed)->reason, HasSubstr("/spill"));
  EXPECT_EQ(pause_cause(find<RecordStatus>(failed)->reason), PauseCause::kSum);
  EXPECT_NE(find<TellStatus>(machine.status_recorded(machine.step(), at(2s))), nullptr);
  const Effects resumed = resume(machine, at(9s));
  ASSERT_NE(find<RecordAttempt>(resumed), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(resumed)->sum_anew);
}

TEST_F(RunMachineTest, AQuorumWithTooLittleWeightIsNone) {
  RunStart heavy = start();
  heavy.plan.weight_min = 25;
  RunMachine machine(heavy);
  machine.sites_changed(sites(3), at(0s));
  machine.attempt_recorded(machine.step(), at(0s));
  bring(machine, 1, {1, 2}, at(1s));
  EXPECT_EQ(find<Finalise>(machine.tick(at(10s))), nullptr) << "a weight of 20";
  const Effects closing = bring(machine, 2, {3}, at(11s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  EXPECT_EQ(find<Finalise>(closing)->record.contributors.total_weight(), 30u);
}

TEST_F(RunMachineTest, SubstitutesHaveRoomTogether) {
  RunStart tight = start();
  tight.plan.value_abs_max = 0x1p40;
  RunMachine machine(tight);
  machine.sites_changed(sites(3), at(0s));
  machine.attempt_recorded(machine.step(), at(0s));
  std::map<SiteId, SiteInfo> more = sites(5);
  more[SiteId(4)].weight_max = more[SiteId(5)].weight_max = 150;  // 300 are there, and 512 have room
  machine.sites_changed(more, at(1s));
  const Effects again = machine.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_EQ(find<RecordAttempt>(again)->record.participants.size(), 4u) << "for one of the two";
}

// In another federation, where enrolment has given the two their numbers the other way round.
TEST_F(RunMachineTest, TheSubstituteThatHasTheRoomGoesByNames) {
  std::vector<std::uint64_t> called;
  for (const std::uint32_t first : {4U, 5U}) {
    for (std::uint64_t seed = 1; seed <= 10; ++seed) {
      RunStart tight = start();
      tight.plan.value_abs_max = 0x1p40;
      tight.plan.seed = seed;
      RunMachine machine(tight);
      machine.sites_changed(sites(3), at(0s));
      machine.attempt_recorded(machine.step(), at(0s));
      std::map<SiteId, SiteInfo> more = sites(5);
      for (const std::uint32_t one : {4U, 5U}) more[SiteId(one)] = {Epoch(1), 150, one == first ? 7U : 8U};
      machine.sites_changed(more, at(1s));
      const Effects again = machine.tick(at(20s));
      ASSERT_NE(find<RecordAttempt>(again), nullptr);
      const SiteId one = find<RecordAttempt>(again)->record.participants.back().site;
      called.push_back(more.at(one).name_key);
    }
  }
  EXPECT_TRUE(std::equal(called.begin(), called.begin() + 10, called.begin() + 10));
}

// A site that was revoked meanwhile is not asked, as long as no record names it as a participant.
TEST_F(RunMachineTest, ARoundOfWhichNothingIsOnRecordBeginsAnewWithWhoIsThere) {
  const Error full{Code::kResourceExhausted, "no space left"};
  RunMachine machine(start());
  machine.sites_changed(sites(4), at(0s));
  machine.step_failed(machine.step(), full);
  machine.status_recorded(machine.step(), at(1s));
  machine.sites_changed(sites(3), at(2s));
  const Effects first = resume(machine, at(3s));
  ASSERT_NE(find<RecordAttempt>(first), nullptr);
  EXPECT_EQ(find<RecordAttempt>(first)->record.attempt, AttemptId(1));
  EXPECT_EQ(find<RecordAttempt>(first)->record.participants.size(), 3u);
  EXPECT_TRUE(find<RecordAttempt>(first)->sum_anew);

  machine.attempt_recorded(machine.step(), at(3s));
  machine.sites_changed(sites(4), at(4s));
  ASSERT_EQ(find<RecordAttempt>(machine.tick(at(23s)))->record.participants.size(), 4u) << "with a substitute";
  machine.step_failed(machine.step(), full);
  machine.status_recorded(machine.step(), at(24s));
  machine.sites_changed(sites(3), at(25s));
  const Effects third = resume(machine, at(26s));
  ASSERT_NE(find<RecordAttempt>(third), nullptr);
  EXPECT_EQ(find<RecordAttempt>(third)->record.participants.size(), 3u);
  EXPECT_TRUE(find<RecordAttempt>(third)->sum_anew) << "what the substitute sent may not be in it";
  machine.attempt_recorded(machine.step(), at(26s));
  bring(machine, 1, {1, 2, 3}, at(27s));
  EXPECT_NE(find<Publish>(commit(machine, at(27s))), nullptr);
}

}  // namespace
}  // namespace fluvial::coordinator
