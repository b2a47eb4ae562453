// Rounds with several passes, stepped by hand.
#include <gmock/gmock.h>

#include "coordinator/logic/test_support.h"

namespace fluvial::coordinator {
namespace {

using testing::ElementsAre;
using testing::IsEmpty;

constexpr round::VectorRef kMean{{std::byte{1}}, 16};
constexpr round::VectorRef kOtherMean{{std::byte{2}}, 16};
constexpr round::VectorRef kState{{std::byte{3}}, 48};

class RunPasses : public RunMachineTest {
 protected:
  static RunStart two_passes(std::uint64_t quorum = 2) {
    RunStart begin = start();
    begin.plan = plan(quorum);
    begin.pass_values = {4, 9};
    return begin;
  }
  static RunMachine opened(RunStart begin = two_passes()) {
    RunMachine machine(std::move(begin));
    machine.begin(at(0s));
    machine.sites_changed(sites(3), at(0s));
    machine.attempt_recorded(machine.step(), at(0s));
    EXPECT_TRUE(machine.is_open());
    return machine;
  }
  // With these in its sum, the second pass is open.
  static RunMachine in_second(std::initializer_list<std::uint32_t> ids, TimePoint now, RunStart begin = two_passes()) {
    RunMachine machine = opened(std::move(begin));
    const Effects closed = ids.size() == 3 ? bring(machine, 1, ids, now) : close_at_soft(machine, ids, now);
    EXPECT_NE(find<Reduce>(closed), nullptr);
    EXPECT_NE(find<OpenRound>(machine.reduced(machine.step(), kMean, now)), nullptr);
    return machine;
  }
  static Effects close_at_soft(RunMachine& machine, std::initializer_list<std::uint32_t> ids, TimePoint now) {
    bring(machine, 1, ids, at(1s));
    return machine.tick(now);
  }
  static std::vector<std::uint32_t> awaited(const RunMachine& machine) {
    std::vector<std::uint32_t> ids;
    for (const SiteId site : machine.gather().awaited()) ids.push_back(site.value());
    return ids;
  }
};

TEST_F(RunPasses, OneOfARoundThatHasOneIsNotSaid) { EXPECT_FALSE(RunMachineTest::opened().pass().has_value()); }

TEST_F(RunPasses, AMeanOpensTheNextOneAndTheLastCommits) {
  RunMachine machine = opened();
  EXPECT_EQ(machine.pass(), (round::Pass{.index = 0, .count = 2, .value_count = 4}));
  const Effects closed = bring(machine, 1, {1, 2, 3}, at(2s));
  const Reduce* const reduce = find<Reduce>(closed);
  ASSERT_NE(reduce, nullptr);
  EXPECT_EQ(find<Finalise>(closed), nullptr) << "the first pass commits nothing";
  EXPECT_EQ(reduce->pass, 0u);
  EXPECT_EQ(reduce->contributors.size(), 3u);
  const Effects opening = machine.reduced(reduce->step, kMean, at(3s));
  EXPECT_NE(find<OpenRound>(opening), nullptr);
  EXPECT_EQ(find<RecordAttempt>(opening), nullptr) << "it is the same attempt";
  EXPECT_EQ(machine.pass(), (round::Pass{.index = 1, .count = 2, .value_count = 9, .mean = kMean}));
  EXPECT_THAT(awaited(machine), ElementsAre(1, 2, 3));
  const Effects closing = bring(machine, 2, {1, 2, 3}, at(4s));
  const Finalise* const finalise = find<Finalise>(closing);
  ASSERT_NE(finalise, nullptr);
  ASSERT_EQ(finalise->record.passes.size(), 1u);
  EXPECT_EQ(finalise->record.passes[0].contributors.size(), 3u);
  EXPECT_EQ(finalise->record.passes[0].mean, kMean);
  EXPECT_THAT(finalise->record.late, IsEmpty());
}

TEST_F(RunPasses, TheStateOfACommitOpensTheNextRound) {
  RunStart begin = two_passes();
  begin.codec_state = kOtherMean;
  RunMachine machine = in_second({1, 2, 3}, at(2s), std::move(begin));
  EXPECT_EQ(machine.pass()->state, kOtherMean);
  bring(machine, 2, {1, 2, 3}, at(3s));
  const Effects record = machine.finalised(machine.step(), {RunId(1), ModelVersion(1), {}, 40}, at(4s), kState);
  ASSERT_NE(find<RecordCommit>(record), nullptr);
  EXPECT_EQ(find<RecordCommit>(record)->record.codec_state, kState);
  EXPECT_EQ(find<RecordCommit>(record)->record.epoch, machine.attempt().epoch);
  EXPECT_NE(find<Publish>(machine.commit_recorded(machine.step(), at(4s))), nullptr);
  machine.attempt_recorded(machine.step(), at(4s));
  EXPECT_EQ(machine.pass(), (round::Pass{.index = 0, .count = 2, .value_count = 4, .mean = {}, .state = kState}));
}

TEST_F(RunPasses, WhoMissedOneTakesNoPartInTheNextAndIsLate) {
  RunMachine machine = in_second({1, 3}, at(10s));
  EXPECT_THAT(awaited(machine), ElementsAre(1, 3));
  EXPECT_EQ(machine.admit(SiteId(2), Epoch(1), 10).error().code, Code::kFailedPrecondition);
  const Effects closing = bring(machine, 2, {1, 3}, at(11s));
  ASSERT_NE(find<Finalise>(closing), nullptr) << "nobody waits for it again";
  EXPECT_THAT(find<Finalise>(closing)->record.late, ElementsAre(SiteId(2)));
}

TEST_F(RunPasses, WhoDropsOutBetweenTwoIsLateAndInTheSetOfTheFirst) {
  RunMachine machine = in_second({1, 2, 3}, at(2s));
  bring(machine, 2, {1, 2}, at(3s));
  const Effects closing = machine.tick(machine.soft_deadline());
  ASSERT_NE(find<Finalise>(closing), nullptr);
  const round::CommitRecord& record = find<Finalise>(closing)->record;
  EXPECT_EQ(record.contributors.size(), 2u);
  EXPECT_TRUE(record.passes[0].contributors.contains(SiteId(3)));
  EXPECT_THAT(record.late, ElementsAre(SiteId(3)));
}

TEST_F(RunPasses, RefusalsOfEachAreTheRounds) {
  RunMachine machine = opened(two_passes(1));
  bring(machine, 1, {1, 2}, at(1s));
  EXPECT_NE(find<Reduce>(machine.refused({SiteId(3), {Code::kDataLoss, "NaN"}}, at(2s))), nullptr);
  machine.reduced(machine.step(), kMean, at(2s));
  bring(machine, 2, {2}, at(3s));
  const Effects closing = machine.refused({SiteId(1), {Code::kDataLoss, "NaN"}}, at(4s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  const round::CommitRecord& record = find<Finalise>(closing)->record;
  ASSERT_EQ(record.refusals.size(), 2u);
  EXPECT_EQ(record.refusals[0].site, SiteId(1));
  EXPECT_EQ(record.refusals[1].site, SiteId(3));
  EXPECT_THAT(record.late, IsEmpty());
}

TEST_F(RunPasses, TheNextAttemptBeginsWithTheFirst) {
  RunMachine machine = in_second({1, 2, 3}, at(2s));
  bring(machine, 2, {1}, at(3s));
  const Effects again = machine.tick(machine.hard_deadline());
  const RecordAttempt* const record = find<RecordAttempt>(again);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->record.attempt, AttemptId(2));
  EXPECT_TRUE(record->sum_anew) << "it holds what was made from this attempt's mean";
  EXPECT_EQ(machine.pass(), (round::Pass{.index = 0, .count = 2, .value_count = 4}));
  machine.attempt_recorded(machine.step(), at(30s));
  EXPECT_THAT(awaited(machine), ElementsAre(1, 2, 3));
  const Effects closed = bring(machine, 3, {1, 2, 3}, at(31s));
  ASSERT_NE(find<Reduce>(closed), nullptr);
  machine.reduced(machine.step(), kOtherMean, at(31s));
  bring(machine, 4, {1, 2, 3}, at(32s));
  EXPECT_EQ(machine.pass()->mean, kOtherMean);
}

TEST_F(RunPasses, AnAttemptThatFailsInTheFirstKeepsItsSum) {
  RunMachine machine = opened();
  bring(machine, 1, {1}, at(1s));
  const Effects again = machine.tick(at(20s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_FALSE(find<RecordAttempt>(again)->sum_anew);
  machine.attempt_recorded(machine.step(), at(20s));
  EXPECT_NE(find<Reduce>(bring(machine, 2, {2, 3}, at(21s))), nullptr);
}

TEST_F(RunPasses, NothingComesInWhileTheMeanIsMade) {
  RunMachine machine = opened();
  close_at_soft(machine, {1, 2}, at(10s));
  EXPECT_FALSE(machine.is_open());
  EXPECT_EQ(machine.admit(SiteId(3), Epoch(1), 10).error().code, Code::kStale);
  const Effects late = machine.arrived(ArrivalId(9), Arrival{set_of({3}), {}, {}});
  ASSERT_NE(find<Drop>(late), nullptr);
  EXPECT_EQ(find<Drop>(late)->error.code, Code::kStale);
  EXPECT_TRUE(machine.reduced({RunId(1), 77}, kMean, at(11s)).empty()) << "of another step";
  EXPECT_TRUE(machine.tick(at(30s)).empty()) << "it ends with its step";
}

TEST_F(RunPasses, WhoIsShutOutWhileTheMeanIsMadeTakesNoPart) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2, 3}, at(2s));
  machine.shut_out({SiteId(2), {Code::kUnauthenticated, "site-2 was revoked"}}, at(2s));
  machine.reduced(machine.step(), kMean, at(3s));
  EXPECT_THAT(awaited(machine), ElementsAre(1, 3));
}

TEST_F(RunPasses, WhoIsShutOutAfterItsShareIsRefusedAndNotLate) {
  RunMachine machine = opened(two_passes(1));
  bring(machine, 1, {1, 2, 3}, at(2s));
  const round::Refusal revoked{SiteId(2), {Code::kUnauthenticated, "site-2 was revoked"}};
  machine.shut_out(revoked, at(2s));
  EXPECT_EQ(machine.participants_after(set_of({1, 2, 3})).size(), 2u) << "as the next opening is signed";
  machine.reduced(machine.step(), kMean, at(3s));
  machine.shut_out({SiteId(3), {Code::kUnauthenticated, "site-3 was revoked"}}, at(3s));
  const Effects closing = bring(machine, 2, {1}, at(4s));
  ASSERT_NE(find<Finalise>(closing), nullptr);
  const round::CommitRecord& record = find<Finalise>(closing)->record;
  ASSERT_EQ(record.refusals.size(), 2u);
  EXPECT_EQ(record.refusals[0].site, SiteId(2));
  EXPECT_EQ(record.refusals[0].error.message, revoked.error.message);
  EXPECT_EQ(record.refusals[1].site, SiteId(3));
  EXPECT_THAT(record.late, IsEmpty());
}

TEST_F(RunPasses, WhoMissedOneIsKnownByItAndWhoWasRefusedByThat) {
  RunStart begin = two_passes(1);
  RunMachine machine = opened(std::move(begin));
  bring(machine, 1, {1}, at(1s));
  machine.refused({SiteId(3), {Code::kDataLoss, "NaN"}}, at(2s));
  EXPECT_FALSE(machine.missed_pass(SiteId(2)).has_value()) << "it is awaited";
  machine.tick(at(10s));
  machine.reduced(machine.step(), kMean, at(10s));
  EXPECT_EQ(machine.missed_pass(SiteId(2)), 0u);
  EXPECT_FALSE(machine.missed_pass(SiteId(1)).has_value());
  EXPECT_FALSE(machine.missed_pass(SiteId(3)).has_value());
  ASSERT_EQ(machine.refused_before().size(), 1u);
  EXPECT_TRUE(machine.refused_before().contains(SiteId(3)));
}

TEST_F(RunPasses, ALeaseThatMovesMovesInTheNextPass) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2, 3}, at(2s));
  machine.leases_changed({{SiteId(2), Epoch(9)}});
  machine.reduced(machine.step(), kMean, at(3s));
  EXPECT_EQ(machine.admit(SiteId(2), Epoch(1), 10).error().code, Code::kStale);
  EXPECT_TRUE(machine.admit(SiteId(2), Epoch(9), 10).ok());
}

TEST_F(RunPasses, AMeanThatCannotBeMadePausesAndTheSumBeginsAnew) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2, 3}, at(2s));
  const Effects paused = machine.step_failed(machine.step(), {Code::kDataLoss, "a probe is wrong"});
  ASSERT_NE(find<RecordStatus>(paused), nullptr);
  machine.status_recorded(machine.step(), at(3s));
  EXPECT_EQ(machine.status(), RunStatus::kPaused);
  const Effects again = resume(machine, at(4s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(again)->sum_anew);
  EXPECT_EQ(find<RecordAttempt>(again)->record.attempt, AttemptId(2));
}

TEST_F(RunPasses, ASumThatIsSpoiltInTheSecondBeginsAnewWithTheFirst) {
  RunMachine machine = in_second({1, 2, 3}, at(2s));
  machine.arrived(ArrivalId(7), Arrival{set_of({1}), {}, {}});
  const Effects again = machine.take_failed(ArrivalId(7), {Code::kUnavailable, "cannot be read back"}, at(3s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_TRUE(find<RecordAttempt>(again)->sum_anew);
  EXPECT_EQ(machine.pass()->index, 0u);
}

TEST_F(RunPasses, APauseWaitsForTheRoundAndAStopGivesItUp) {
  RunMachine pausing = opened();
  bring(pausing, 1, {1, 2, 3}, at(2s));
  EXPECT_TRUE(pausing.pause("by hand", at(2s)).empty()) << "the mean is being made";
  EXPECT_NE(find<RecordStatus>(pausing.reduced(pausing.step(), kMean, at(3s))), nullptr);
  pausing.status_recorded(pausing.step(), at(3s));
  EXPECT_NE(find<Finalise>(bring(pausing, 2, {1, 2, 3}, at(4s))), nullptr);
  commit(pausing, at(5s));
  EXPECT_EQ(pausing.status(), RunStatus::kPaused);

  RunMachine stopping = in_second({1, 2, 3}, at(2s));
  stop(stopping, at(3s));
  EXPECT_EQ(stopping.status(), RunStatus::kStopped);
  EXPECT_FALSE(stopping.admit(SiteId(1), Epoch(1), 10).ok());
}

TEST_F(RunPasses, ALaterOneThatCannotReachQuorumEndsTheAttempt) {
  RunMachine machine = in_second({1, 2, 3}, at(2s));
  bring(machine, 2, {1}, at(3s));
  EXPECT_EQ(find<RecordAttempt>(machine.refused({SiteId(2), {Code::kDataLoss, "NaN"}}, at(4s))), nullptr)
      << "the third may come";
  const Effects again = machine.refused({SiteId(3), {Code::kDataLoss, "NaN"}}, at(5s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr) << "nobody else can";
  EXPECT_EQ(find<RecordAttempt>(again)->record.attempt, AttemptId(2));

  RunMachine left = opened();
  bring(left, 1, {1, 2, 3}, at(2s));
  for (const std::uint32_t site : {1, 2}) left.shut_out({SiteId(site), {Code::kUnauthenticated, "revoked"}}, at(2s));
  const Effects next = left.reduced(left.step(), kMean, at(3s));
  EXPECT_EQ(find<OpenRound>(next), nullptr) << "one cannot be two";
  EXPECT_NE(find<RecordAttempt>(next), nullptr);
}

// An aggregator far down the tree closes before the mean has come to its sites.
TEST_F(RunPasses, WhoIsMissingFromALaterOneMayStillCome) {
  RunMachine machine = in_second({1, 2, 3}, at(2s));
  const Effects closed = machine.arrived(ArrivalId(2), Arrival{{}, {}, {SiteId(1), SiteId(2), SiteId(3)}});
  EXPECT_EQ(find<RecordAttempt>(closed), nullptr) << "the attempt ends at its hard deadline";
  EXPECT_EQ(find<RecordAttempt>(machine.tick(machine.soft_deadline())), nullptr);
  EXPECT_NE(find<Finalise>(bring(machine, 3, {1, 2, 3}, machine.soft_deadline() + 1s)), nullptr);
}

// Others have lost it: who was on its way with its second vector needs no substitute, and nobody is told that it is
// away.
TEST_F(RunPasses, WhoIsAwaitedInALostOneIsNotAbsent) {
  RunStart begin = two_passes();
  begin.plan.attempts_max = 1;
  begin.plan.quorum = 3;
  RunMachine machine = in_second({1, 2, 3}, at(2s), std::move(begin));
  const Effects paused = machine.refused({SiteId(1), {Code::kFailedPrecondition, "its folder is new"}}, at(3s));
  ASSERT_NE(find<RecordStatus>(paused), nullptr);
  EXPECT_THAT(find<RecordStatus>(paused)->absent, ElementsAre(SiteId(1)));

  RunStart more = two_passes();
  more.plan.quorum = 3;
  RunMachine goes_on = in_second({1, 2, 3}, at(2s), std::move(more));
  goes_on.sites_changed(sites(6), at(2s));
  const Effects again = goes_on.refused({SiteId(1), {Code::kFailedPrecondition, "its folder is new"}}, at(3s));
  ASSERT_NE(find<RecordAttempt>(again), nullptr);
  EXPECT_EQ(find<RecordAttempt>(again)->record.participants.size(), 4U) << "one takes the place of one";
}

TEST_F(RunPasses, AttemptsThatAreLostSoAreCounted) {
  RunStart begin = two_passes();
  begin.plan.attempts_max = 1;
  RunMachine machine = in_second({1, 2, 3}, at(2s), std::move(begin));
  machine.refused({SiteId(1), {Code::kDataLoss, "NaN"}}, at(3s));
  const Effects paused = machine.refused({SiteId(2), {Code::kDataLoss, "NaN"}}, at(4s));
  ASSERT_NE(find<RecordStatus>(paused), nullptr);
  EXPECT_EQ(find<RecordStatus>(paused)->status, RunStatus::kPaused);
}

// In a later attempt sites send what they have: its first pass takes no time at all.
TEST_F(RunPasses, TheSecondOfALaterAttemptHasTheTimeOfThePlan) {
  RunStart begin = two_passes();
  begin.plan.soft_deadline_min = 1s;
  RunMachine machine = in_second({1, 2, 3}, at(2s), std::move(begin));
  machine.tick(machine.hard_deadline());
  machine.attempt_recorded(machine.step(), at(30s));
  bring(machine, 3, {1, 2, 3}, at(30s) + 5ms);
  machine.reduced(machine.step(), kOtherMean, at(31s));
  ASSERT_EQ(machine.pass()->index, 1u);
  EXPECT_EQ(machine.soft_deadline(), at(41s));
}

TEST_F(RunPasses, TheSecondHasTheTimeOfTheFirstAtMost) {
  RunStart begin = two_passes();
  begin.plan.soft_deadline_min = 1s;
  EXPECT_EQ(in_second({1, 2, 3}, at(2s), begin).soft_deadline(), at(5s)) << "half as long again";
  EXPECT_EQ(in_second({1, 2}, at(10s), begin).soft_deadline(), at(20s)) << "the plan's at most";
  begin.plan.soft_deadline_min = 4s;
  EXPECT_EQ(in_second({1, 2, 3}, at(2s), begin).soft_deadline(), at(6s)) << "and no less than this";
  begin.plan.adaptive_deadlines = false;
  EXPECT_EQ(in_second({1, 2, 3}, at(2s), begin).soft_deadline(), at(12s)) << "the plan's own";
  EXPECT_EQ(in_second({1, 2, 3}, at(2s), begin).hard_deadline(), at(22s));
}

}  // namespace
}  // namespace fluvial::coordinator
