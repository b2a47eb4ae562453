// A run's status: running, paused, stopped, done. Nobody is told of a status before the journal has recorded it.
#include <gmock/gmock.h>

#include <vector>

#include "coordinator/logic/pause_cause.h"
#include "coordinator/logic/test_support.h"

namespace fluvial::coordinator {
namespace {

using testing::HasSubstr;

using RunStatusTest = RunMachineTest;

TEST_F(RunStatusTest, PausesAfterItsAttemptsAndResumesWithTheSameRound) {
  RunMachine machine = opened();
  machine.tick(at(20s));
  machine.attempt_recorded(machine.step(), at(20s));
  const Effects paused = machine.tick(at(40s));
  ASSERT_NE(find<RecordStatus>(paused), nullptr);
  EXPECT_EQ(find<TellStatus>(paused), nullptr) << "before the journal has it";
  EXPECT_NE(find<TellStatus>(machine.status_recorded(machine.step(), at(40s))), nullptr);
  EXPECT_EQ(machine.status(), RunStatus::kPaused);
  EXPECT_THAT(machine.reason(), HasSubstr("no quorum after 2 attempts"));
  EXPECT_EQ(pause_cause(machine.reason()), PauseCause::kNoQuorum);
  const Effects resumed = resume(machine, at(50s));
  ASSERT_NE(find<RecordAttempt>(resumed), nullptr);
  EXPECT_EQ(find<RecordAttempt>(resumed)->record.attempt, AttemptId(3)) << "attempts never repeat";
  EXPECT_EQ(find<RecordAttempt>(resumed)->record.round, RoundId(1));
}

TEST_F(RunStatusTest, APauseForWantOfAQuorumNamesTheAbsentAndWhoKnowsSaysWhy) {
  RunMachine machine = opened();
  bring(machine, 1, {2}, at(1s));
  machine.tick(at(20s));
  machine.attempt_recorded(machine.step(), at(20s));
  const Effects paused = machine.tick(at(40s));
  const RecordStatus* record = find<RecordStatus>(paused);
  ASSERT_NE(record, nullptr);
  EXPECT_EQ(record->reason, "round 1: no quorum after 2 attempts: 1 of 2 needed");
  EXPECT_THAT(record->absent, testing::ElementsAre(SiteId(1), SiteId(3)));
  machine.explain(record->step, record->reason + "; a: no worker attached");
  machine.explain({RunId(1), record->step.number - 1}, "of another step");
  const Effects told = machine.status_recorded(machine.step(), at(40s));
  EXPECT_EQ(find<TellStatus>(told)->reason,
            "round 1: no quorum after 2 attempts: 1 of 2 needed; a: no worker attached");
  EXPECT_EQ(machine.reason(), find<TellStatus>(told)->reason);
  machine.explain(record->step, "too late");
  EXPECT_EQ(machine.reason(), find<TellStatus>(told)->reason);
}

TEST_F(RunStatusTest, PauseLetsTheOpenRoundCloseAndStopDoesNot) {
  RunMachine machine = opened();
  const Effects asked = machine.pause("by hand", at(0s));
  ASSERT_NE(find<RecordStatus>(asked), nullptr) << "a restart must not forget it";
  EXPECT_EQ(find<RecordStatus>(asked)->status, RunStatus::kPaused);
  EXPECT_EQ(find<Answer>(asked), nullptr);
  const Effects answered = machine.status_recorded(machine.step(), at(0s));
  EXPECT_TRUE(find<Answer>(answered)->result.ok());
  EXPECT_EQ(find<TellStatus>(answered), nullptr) << "the open round closes first";
  EXPECT_TRUE(machine.is_open());
  bring(machine, 1, {1, 2, 3}, at(1s));
  const Effects published = commit(machine, at(2s));
  EXPECT_NE(find<Publish>(published), nullptr);
  EXPECT_EQ(find<RecordAttempt>(published), nullptr);
  EXPECT_NE(find<TellStatus>(published), nullptr) << "the journal has it";
  EXPECT_EQ(machine.status(), RunStatus::kPaused);
  EXPECT_EQ(pause_cause(machine.reason()), PauseCause::kPerson);
  EXPECT_FALSE(machine.waits_for_sites());
  EXPECT_NE(find<RecordAttempt>(resume(machine, at(3s))), nullptr);
  machine.attempt_recorded(machine.step(), at(3s));
  const Effects taking = machine.arrived(ArrivalId(5), Arrival{set_of({1}), {}, {}});
  EXPECT_NE(find<Take>(taking), nullptr);
  EXPECT_NE(find<RecordStatus>(machine.stop("by hand", at(4s))), nullptr);
  EXPECT_TRUE(machine.admit(SiteId(2), Epoch(1), 10).ok()) << "the round goes on until the journal has it";
  const Effects stopped = machine.status_recorded(machine.step(), at(4s));
  EXPECT_EQ(find<TellStatus>(stopped)->status, RunStatus::kStopped);
  EXPECT_TRUE(find<Answer>(stopped)->result.ok());
  EXPECT_TRUE(machine.taken(ArrivalId(5), set_of({1}), at(4s)).empty());
  EXPECT_EQ(machine.status(), RunStatus::kStopped);
  const Effects refused = machine.resume(at(5s));
  EXPECT_EQ(find<RecordStatus>(refused), nullptr);
  EXPECT_EQ(find<Answer>(refused)->result.error().code, Code::kFailedPrecondition) << "another run may continue it";
}

TEST_F(RunStatusTest, ACommandThatTheJournalDoesNotTakeIsNotObeyedAndTheRunGoesOn) {
  RunMachine machine = opened();
  const Error full{Code::kResourceExhausted, "no space left"};
  machine.stop("by hand", at(1s));
  bring(machine, 1, {1, 2, 3}, at(2s));
  EXPECT_TRUE(machine.is_open()) << "nothing begins before the journal has answered";
  const Effects failed = machine.status_failed(machine.step(), full, at(3s));
  EXPECT_EQ(find<Answer>(failed)->result.error(), full);
  EXPECT_EQ(find<TellStatus>(failed), nullptr);
  EXPECT_EQ(machine.status(), RunStatus::kRunning);
  ASSERT_NE(find<Finalise>(failed), nullptr) << "all are in";
  machine.pause("by hand", at(3s));
  const Effects pausing = machine.finalised(machine.step(), {RunId(1), ModelVersion(1), {}, 40}, at(3s));
  ASSERT_NE(find<RecordStatus>(pausing), nullptr);
  EXPECT_EQ(find<RecordCommit>(pausing), nullptr) << "one record at a time";
  const Effects not_paused = machine.status_failed(machine.step(), full, at(3s));
  EXPECT_FALSE(find<Answer>(not_paused)->result.ok());
  ASSERT_NE(find<RecordCommit>(not_paused), nullptr);
  EXPECT_NE(find<RecordAttempt>(machine.commit_recorded(machine.step(), at(4s))), nullptr) << "it is not paused";
  machine.step_failed(machine.step(), full);
  machine.status_recorded(machine.step(), at(5s));
  machine.resume(at(6s));
  const Effects not_resumed = machine.status_failed(machine.step(), full, at(6s));
  EXPECT_FALSE(find<Answer>(not_resumed)->result.ok());
  EXPECT_EQ(find<RecordAttempt>(not_resumed), nullptr);
  EXPECT_EQ(machine.status(), RunStatus::kPaused);
}

TEST_F(RunStatusTest, WhatAPersonWantsWaitsForTheStepThatIsUnderWay) {
  RunMachine machine(start());
  machine.sites_changed(sites(3), at(0s));
  EXPECT_TRUE(machine.stop("by hand", at(0s)).empty()) << "the attempt's record may be durable already";
  const Effects open = machine.attempt_recorded(machine.step(), at(0s));
  ASSERT_NE(find<RecordStatus>(open), nullptr);
  EXPECT_EQ(find<RecordStatus>(open)->status, RunStatus::kStopped);

  RunMachine closing = opened();
  EXPECT_NE(find<Finalise>(bring(closing, 1, {1, 2, 3}, at(1s))), nullptr);
  EXPECT_TRUE(closing.stop("by hand", at(1s)).empty());
  const Effects made = closing.finalised(closing.step(), {RunId(1), ModelVersion(1), {}, 40}, at(1s));
  EXPECT_NE(find<RecordStatus>(made), nullptr);
  EXPECT_EQ(find<RecordCommit>(made), nullptr);
  const Effects stopped = closing.status_recorded(closing.step(), at(1s));
  EXPECT_EQ(find<RecordCommit>(stopped), nullptr) << "it was given up";
  EXPECT_TRUE(closing.commit_recorded(closing.step(), at(1s)).empty());

  RunMachine committing = opened();
  bring(committing, 1, {1, 2, 3}, at(1s));
  EXPECT_NE(find<RecordCommit>(committing.finalised(committing.step(), {RunId(1), ModelVersion(1), {}, 40}, at(1s))),
            nullptr);
  EXPECT_TRUE(committing.stop("by hand", at(1s)).empty());
  const Effects committed = committing.commit_recorded(committing.step(), at(1s));
  EXPECT_NE(find<Publish>(committed), nullptr) << "it counts";
  EXPECT_EQ(find<RecordStatus>(committed)->status, RunStatus::kStopped);
  EXPECT_EQ(find<RecordAttempt>(committed), nullptr);
}

TEST_F(RunStatusTest, EachCommandHasOneAnswerInTheOrderInWhichTheyCame) {
  RunMachine machine = opened();
  machine.pause("by hand", at(0s));
  EXPECT_TRUE(machine.resume(at(0s)).empty());
  EXPECT_TRUE(machine.stop("by hand", at(0s)).empty());
  EXPECT_TRUE(machine.pause("by hand", at(0s)).empty());
  const auto next = [&](RunStatus wanted) {
    const Effects done = machine.status_recorded(machine.step(), at(1s));
    EXPECT_TRUE(find<Answer>(done)->result.ok());
    ASSERT_NE(find<RecordStatus>(done), nullptr);
    EXPECT_EQ(find<RecordStatus>(done)->status, wanted);
  };
  next(RunStatus::kRunning);
  next(RunStatus::kStopped);
  std::vector<bool> answers;
  for (const Effect& effect : machine.status_recorded(machine.step(), at(1s))) {
    if (const Answer* one = std::get_if<Answer>(&effect)) answers.push_back(one->result.ok());
  }
  EXPECT_EQ(answers, (std::vector{true, false})) << "stopped, and no pause after that";
}

TEST_F(RunStatusTest, WhatComesLateAfterAStopChangesNothing) {
  RunMachine machine = opened();
  const Step opening = machine.step();
  machine.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}});
  stop(machine, at(1s));
  const Error failed{Code::kUnavailable, "I/O error"};
  for (const Step late : {opening, machine.step()}) {
    EXPECT_TRUE(machine.step_failed(late, failed).empty());
    EXPECT_TRUE(machine.attempt_recorded(late, at(2s)).empty());
    EXPECT_TRUE(machine.finalised(late, {RunId(1), ModelVersion(1), {}, 40}, at(2s)).empty());
    EXPECT_TRUE(machine.commit_recorded(late, at(2s)).empty());
    EXPECT_TRUE(machine.status_recorded(late, at(2s)).empty());
    EXPECT_TRUE(machine.status_failed(late, failed, at(2s)).empty());
  }
  EXPECT_TRUE(machine.taken(ArrivalId(1), set_of({1}), at(2s)).empty());
  EXPECT_TRUE(machine.take_failed(ArrivalId(1), failed, at(2s)).empty());
  EXPECT_TRUE(machine.refused({SiteId(1), failed}, at(2s)).empty());
  EXPECT_TRUE(machine.tick(at(99s)).empty());
  EXPECT_NE(find<Drop>(machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}})), nullptr);
  EXPECT_EQ(machine.status(), RunStatus::kStopped);
  EXPECT_EQ(find<RecordStatus>(machine.resume(at(100s))), nullptr);
}

TEST_F(RunStatusTest, AnUpdateThatIsBeingAddedWhenTheRecordOfAnAttemptFailsIsInOnceResumed) {
  RunMachine machine = opened();
  machine.tick(at(20s));
  ASSERT_NE(find<Take>(machine.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}})), nullptr);
  machine.step_failed(machine.step(), {Code::kResourceExhausted, "no space left"});
  machine.status_recorded(machine.step(), at(20s));
  EXPECT_NE(find<Release>(machine.taken(ArrivalId(1), set_of({1}), at(21s))), nullptr);
  resume(machine, at(22s));
  machine.attempt_recorded(machine.step(), at(22s));
  EXPECT_TRUE(machine.gather().held().contains(SiteId(1)));
}

TEST_F(RunStatusTest, EndsAfterItsLastRound) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2, 3}, at(1s));
  commit(machine, at(1s));
  machine.attempt_recorded(machine.step(), at(1s));
  bring(machine, 2, {1, 2, 3}, at(2s));
  const Effects published = commit(machine, at(2s));
  EXPECT_TRUE(find<Publish>(published)->last);
  EXPECT_EQ(find<TellStatus>(published), nullptr);
  EXPECT_EQ(find<TellStatus>(machine.status_recorded(machine.step(), at(2s)))->status, RunStatus::kDone);
  EXPECT_EQ(machine.status(), RunStatus::kDone);
  EXPECT_EQ(find<RecordAttempt>(machine.resume(at(3s))), nullptr);
}

TEST_F(RunStatusTest, ItsEndIsNotToldWhenTheJournalDoesNotTakeIt) {
  RunStart last = start();
  last.last_committed = RoundId(2);
  RunMachine machine(last);
  machine.begin(at(0s));
  const Effects failed = machine.status_failed(machine.step(), {Code::kResourceExhausted, "no space left"}, at(0s));
  ASSERT_NE(find<TellStatus>(failed), nullptr);
  EXPECT_EQ(find<TellStatus>(failed)->status, RunStatus::kPaused);
  EXPECT_THAT(machine.reason(), HasSubstr("no space left"));
  EXPECT_EQ(pause_cause(machine.reason()), PauseCause::kDisk);
  const Effects again = resume(machine, at(1s));
  ASSERT_NE(find<RecordStatus>(again), nullptr);
  EXPECT_EQ(find<RecordStatus>(again)->status, RunStatus::kDone);
}

TEST_F(RunStatusTest, APauseDuringTheLastRoundIsOverWithIt) {
  RunStart last = start();
  last.last_committed = RoundId(1);
  RunMachine machine(last);
  machine.sites_changed(sites(3), at(0s));
  machine.attempt_recorded(machine.step(), at(0s));
  machine.pause("by hand", at(0s));
  machine.status_recorded(machine.step(), at(0s));
  bring(machine, 1, {1, 2, 3}, at(1s));
  const Effects published = commit(machine, at(1s));
  EXPECT_TRUE(find<Publish>(published)->last);
  EXPECT_EQ(find<RecordStatus>(published)->status, RunStatus::kDone);
}

TEST_F(RunStatusTest, ARunWhoseLastCommitWasItsLastRoundIsDoneAfterARestart) {
  RunStart again = start();
  again.last_committed = RoundId(2);
  RunMachine machine(again);
  EXPECT_EQ(find<RecordAttempt>(machine.begin(at(0s))), nullptr);
  machine.status_recorded(machine.step(), at(0s));
  EXPECT_EQ(machine.status(), RunStatus::kDone);
}

TEST_F(RunStatusTest, AFailingDiskPausesAndLosesNothing) {
  RunMachine machine = opened();
  bring(machine, 1, {1, 2, 3}, at(1s));
  EXPECT_NE(find<RecordStatus>(machine.step_failed(machine.step(), {Code::kUnavailable, "no space left"})), nullptr);
  EXPECT_NE(find<TellStatus>(machine.status_failed(machine.step(), {Code::kUnavailable, "no space left"}, at(1s))),
            nullptr)
      << "this process does not go on, whatever the journal says";
  EXPECT_EQ(machine.status(), RunStatus::kPaused);
  EXPECT_THAT(machine.reason(), HasSubstr("no space left"));
  EXPECT_EQ(pause_cause(machine.reason()), PauseCause::kDisk);
  const Effects resumed = resume(machine, at(2s));
  EXPECT_FALSE(find<RecordAttempt>(resumed)->sum_anew);
  EXPECT_NE(find<Finalise>(machine.attempt_recorded(machine.step(), at(2s))), nullptr) << "what was in is still in";
}

TEST_F(RunStatusTest, AResumedRunHasAllItsAttemptsAgain) {
  RunMachine machine = opened();
  machine.tick(at(20s));
  machine.attempt_recorded(machine.step(), at(20s));
  machine.tick(at(40s));
  machine.status_recorded(machine.step(), at(40s));
  ASSERT_EQ(machine.status(), RunStatus::kPaused) << "after two attempts";
  EXPECT_NE(find<RecordAttempt>(resume(machine, at(50s))), nullptr);
  machine.attempt_recorded(machine.step(), at(50s));
  EXPECT_NE(find<RecordAttempt>(machine.tick(at(70s))), nullptr) << "the first of two was in vain";
}

TEST_F(RunStatusTest, ARunThatIsResumedBeforeItPausedGoesOn) {
  RunMachine machine = opened();
  machine.pause("by hand", at(0s));
  machine.status_recorded(machine.step(), at(0s));
  resume(machine, at(1s));
  bring(machine, 1, {1, 2, 3}, at(2s));
  EXPECT_NE(find<RecordAttempt>(commit(machine, at(3s))), nullptr);
  EXPECT_EQ(machine.status(), RunStatus::kRunning);
}

}  // namespace
}  // namespace fluvial::coordinator
