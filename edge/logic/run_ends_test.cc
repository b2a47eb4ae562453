#include "edge/logic/run_ends.h"

#include <gtest/gtest.h>

#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

constexpr RunId kEndedRun{1};
constexpr RunId kOther{2};

template <typename T>
const T* find(const RunEffects& effects) {
  for (const RunEffect& effect : effects) {
    if (const T* found = std::get_if<T>(&effect)) return found;
  }
  return nullptr;
}
std::vector<RunId> told(const RunEffects& effects) {
  std::vector<RunId> runs;
  for (const RunEffect& effect : effects) {
    if (const auto* ended = std::get_if<TellEnded>(&effect)) runs.push_back(ended->end.run);
  }
  return runs;
}
const std::vector<RunId> kNobody;

// A run whose first round opened here, on a site whose results may lie on GPUs.
RunEnds opened() {
  RunEnds ends(true);
  const RunEffects effects = ends.opened(kEndedRun, "test", RoundId(1), model(0));
  EXPECT_EQ(effects.size(), 1U);
  EXPECT_NE(find<TellActive>(effects), nullptr);
  return ends;
}

// ---- runs that go on ----------------------------------------------------------------------------------------------

TEST(RunEnds, TheEndOfARunThatAskedAnybodyElseIsTold) {
  RunEnds ends(false);
  const RunEffects active = ends.active(kEndedRun, "test");
  ASSERT_NE(find<TellActive>(active), nullptr);
  EXPECT_EQ(find<TellActive>(active)->run, kEndedRun);
  EXPECT_EQ(find<TellActive>(active)->name, "test");
  EXPECT_TRUE(ends.active(kEndedRun, "test").empty()) << "once";
  ends.committed(kEndedRun, RoundId(1), model(1));
  const RunEffects ended = ends.ended(kEndedRun, "done");
  EXPECT_NE(find<AwaitLastModel>(ended), nullptr);
  EXPECT_EQ(told(ends.last_model_over(kEndedRun)), std::vector{kEndedRun});
  EXPECT_TRUE(ends.ended(kEndedRun, "done").empty());
}

TEST(RunEnds, AnEndThatAWorkerWaitsForHasItsNameFromTheAnswer) {
  RunEnds ends(false);
  EXPECT_TRUE(ends.ended(kEndedRun, "stopped", "test").empty()) << "nobody waits for it";
  ends.known(kEndedRun);
  EXPECT_TRUE(ends.knows(kEndedRun));
  const RunEffects ended = ends.ended(kEndedRun, "stopped", "test");
  ASSERT_NE(find<TellEnded>(ended), nullptr);
  EXPECT_EQ(find<TellEnded>(ended)->end.name, "test");
  EXPECT_FALSE(ends.knows(kEndedRun));
}

TEST(RunEnds, OfRunsWithoutEndTheNewestAreKept) {
  RunEnds ends(false);
  for (std::uint64_t i = 1; i <= kActiveRunsMax + 1; ++i) ends.active(RunId(i), "many");
  EXPECT_FALSE(ends.knows(RunId(1)));
  EXPECT_TRUE(ends.knows(RunId(2)));
  EXPECT_TRUE(ends.knows(RunId(kActiveRunsMax + 1)));
}

// ---- committed models ---------------------------------------------------------------------------------------------

TEST(RunEnds, WorkersAreToldOfACommitOnceItsModelIsHere) {
  RunEnds ends = opened();
  ends.model_held(model(0));
  EXPECT_NE(find<TellNoneCommitted>(ends.committed(kEndedRun, RoundId(1), model(1))), nullptr);
  const RunEffects held = ends.model_held(model(1));
  ASSERT_NE(find<TellCommitted>(held), nullptr);
  EXPECT_EQ(find<TellCommitted>(held)->run, kEndedRun);
  EXPECT_EQ(find<TellCommitted>(held)->name, "test");
  EXPECT_EQ(find<TellCommitted>(held)->round, RoundId(1));
  EXPECT_EQ(find<TellCommitted>(held)->model, model(1));
  EXPECT_NE(find<TellNoneCommitted>(ends.model_held(model(5))), nullptr) << "the committed one is not here any more";
}

TEST(RunEnds, TheNextOpeningSaysWhatALostCommitWouldHave) {
  RunEnds ends = opened();
  ends.model_held(model(1));
  const RunEffects next = ends.opened(kEndedRun, "test", RoundId(2), model(1));
  ASSERT_NE(find<TellCommitted>(next), nullptr);
  EXPECT_EQ(find<TellCommitted>(next)->round, RoundId(1));
  EXPECT_TRUE(ends.committed(kEndedRun, RoundId(1), model(1)).empty()) << "the commit comes after all";
  EXPECT_TRUE(ends.opened(kEndedRun, "test", RoundId(2), model(1)).empty()) << "the next attempt";
}

TEST(RunEnds, OfARunThatNeverOpenedHereWorkersHearNothing) {
  RunEnds ends = opened();
  ends.model_held(model(4));
  EXPECT_NE(find<TellNoneCommitted>(ends.committed(kOther, RoundId(4), model(4))), nullptr);
  EXPECT_TRUE(ends.ended(kOther, "done").empty());
  EXPECT_EQ(ends.run(), kOther) << "it is what the site heard of last";
  EXPECT_EQ(ends.round(), RoundId(4));
}

TEST(RunEnds, TheRoundAtHandIsTheNewestOfItsRun) {
  RunEnds ends = opened();
  ends.opened(kEndedRun, "test", RoundId(5), model(4));
  ends.committed(kEndedRun, RoundId(3), model(3));
  EXPECT_EQ(ends.round(), RoundId(5));
  ends.committed(kOther, RoundId(2), model(2));
  EXPECT_EQ(ends.round(), RoundId(2));
}

// ---- the last model -----------------------------------------------------------------------------------------------

TEST(RunEnds, WorkersHearOfTheEndAfterTheyHadTheLastModel) {
  RunEnds ends = opened();
  ends.committed(kEndedRun, RoundId(1), model(1));
  const RunEffects ended = ends.ended(kEndedRun, "done");
  ASSERT_NE(find<AwaitLastModel>(ended), nullptr);
  EXPECT_EQ(find<AwaitLastModel>(ended)->run, kEndedRun);
  EXPECT_EQ(find<AwaitLastModel>(ended)->round, RoundId(1));
  EXPECT_EQ(told(ended), kNobody);
  EXPECT_TRUE(ends.awaits_last_model(kEndedRun));
  EXPECT_EQ(told(ends.last_model_over(kOther)), kNobody) << "another's";
  const RunEffects had = ends.model_held(model(1));
  EXPECT_NE(find<TellCommitted>(had), nullptr);
  EXPECT_EQ(told(had), kNobody);
  const RunEffects over = ends.last_model_over(kEndedRun);
  ASSERT_NE(find<TellEnded>(over), nullptr);
  EXPECT_EQ(find<TellEnded>(over)->end.name, "test");
  EXPECT_EQ(find<TellEnded>(over)->end.state, "done");
  EXPECT_TRUE(find<TellEnded>(over)->at_hand);
  EXPECT_FALSE(ends.awaits_last_model(kEndedRun));
}

TEST(RunEnds, ARunWithoutACommittedModelEndsAtOnce) {
  RunEnds ends = opened();
  EXPECT_EQ(told(ends.ended(kEndedRun, "stopped")), std::vector{kEndedRun});
}

TEST(RunEnds, TheEndIsToldBeforeATaskOfTheNextRunThoughTheLastModelIsMissing) {
  for (const bool opens : {true, false}) {
    RunEnds ends = opened();
    ends.committed(kEndedRun, RoundId(1), model(1));
    ends.ended(kEndedRun, "done");
    const RunEffects next =
        opens ? ends.opened(kOther, "next", RoundId(1), model(0)) : ends.committed(kOther, RoundId(1), model(2));
    EXPECT_EQ(told(next), std::vector{kEndedRun});
    EXPECT_FALSE(ends.awaits_last_model(kEndedRun));
    EXPECT_EQ(told(ends.last_model_over(kEndedRun)), kNobody) << "once";
  }
}

// ---- memory that is read ------------------------------------------------------------------------------------------

TEST(RunEnds, NoEndIsToldWhileResultsAreRead) {
  RunEnds ends = opened();
  ends.tasks_out(kEndedRun);
  ends.trained();
  EXPECT_EQ(told(ends.ended(kEndedRun, "stopped")), kNobody);
  EXPECT_EQ(told(ends.read()), std::vector{kEndedRun});
}

TEST(RunEnds, NoEndIsToldWhileWhatIsInPlaceIsReducedEarly) {
  RunEnds ends = opened();
  ends.tasks_out(kEndedRun);
  ends.reads();
  EXPECT_EQ(told(ends.train_failed()), kNobody);
  EXPECT_EQ(told(ends.ended(kEndedRun, "stopped")), kNobody);
  EXPECT_EQ(told(ends.read()), std::vector{kEndedRun});

  RunEnds both = opened();
  both.tasks_out(kEndedRun);
  both.reads();
  both.trained();
  both.ended(kEndedRun, "stopped");
  EXPECT_EQ(told(both.read()), kNobody) << "the other goes on";
  EXPECT_EQ(told(both.read()), std::vector{kEndedRun});
}

TEST(RunEnds, WhereResultsLieOnGpusTheEndWaitsForThoseStillToCome) {
  RunEnds failing = opened();
  failing.tasks_out(kEndedRun);
  RunEnds bringing = failing;
  EXPECT_EQ(told(failing.ended(kEndedRun, "stopped")), kNobody);
  EXPECT_EQ(told(failing.train_failed()), std::vector{kEndedRun});

  bringing.ended(kEndedRun, "stopped");
  bringing.trained();
  EXPECT_EQ(told(bringing.read()), std::vector{kEndedRun});

  RunEnds in_host_memory(false);
  in_host_memory.opened(kEndedRun, "test", RoundId(1), model(0));
  in_host_memory.tasks_out(kEndedRun);
  EXPECT_EQ(told(in_host_memory.ended(kEndedRun, "stopped")), std::vector{kEndedRun});
}

// A job that waits for workers has given no task.
TEST(RunEnds, TheEndWaitsForNoWorkersThatAreNotThere) {
  RunEnds ends = opened();
  EXPECT_EQ(told(ends.ended(kEndedRun, "stopped")), std::vector{kEndedRun});
}

TEST(RunEnds, TheLastModelAndTheReadingAreBothWaitedFor) {
  RunEnds ends = opened();
  ends.committed(kEndedRun, RoundId(1), model(1));
  ends.tasks_out(kEndedRun);
  ends.trained();
  EXPECT_NE(find<AwaitLastModel>(ends.ended(kEndedRun, "done")), nullptr);
  RunEnds model_first = ends;
  EXPECT_EQ(told(ends.read()), kNobody);
  EXPECT_EQ(told(ends.last_model_over(kEndedRun)), std::vector{kEndedRun});
  EXPECT_EQ(told(model_first.last_model_over(kEndedRun)), kNobody);
  EXPECT_EQ(told(model_first.read()), std::vector{kEndedRun});
}

TEST(RunEnds, AnotherRunsTasksHoldNoEndBack) {
  RunEnds ends = opened();
  ends.opened(kOther, "next", RoundId(1), model(0));
  ends.tasks_out(kOther);
  EXPECT_EQ(told(ends.ended(kEndedRun, "done")), std::vector{kEndedRun});
}

// ---- several runs -------------------------------------------------------------------------------------------------

// The site learns of a run that ended while it was away when it has begun with the next.
TEST(RunEnds, TheEndOfARunBeforeIsToldOnceAndLeavesTheResultsOfTheOneAtHand) {
  RunEnds ends = opened();
  ends.committed(kEndedRun, RoundId(1), model(1));
  ends.opened(kOther, "next", RoundId(1), model(0));
  const RunEffects ended = ends.ended(kEndedRun, "done");
  EXPECT_EQ(find<AwaitLastModel>(ended), nullptr);
  ASSERT_NE(find<TellEnded>(ended), nullptr);
  EXPECT_EQ(find<TellEnded>(ended)->end.name, "test");
  EXPECT_FALSE(find<TellEnded>(ended)->at_hand);
  EXPECT_TRUE(ends.ended(kEndedRun, "done").empty());
}

TEST(RunEnds, WhileMemoryIsReadTheEndsOfAllRunsWaitInTheirOrder) {
  RunEnds ends = opened();
  ends.tasks_out(kEndedRun);
  ends.trained();
  EXPECT_EQ(told(ends.ended(kEndedRun, "stopped")), kNobody);
  EXPECT_EQ(told(ends.opened(kOther, "next", RoundId(1), model(0))), kNobody);
  EXPECT_EQ(told(ends.ended(kOther, "stopped")), kNobody) << "nor is the one before told early for its sake";
  EXPECT_EQ(told(ends.read()), (std::vector{kEndedRun, kOther}));
}

TEST(RunEnds, ARunThatIsOpenedAgainEndsAgain) {
  RunEnds ends = opened();
  EXPECT_EQ(told(ends.ended(kEndedRun, "stopped")), std::vector{kEndedRun});
  EXPECT_TRUE(ends.ended(kEndedRun, "stopped").empty());
  ends.opened(kEndedRun, "test", RoundId(1), model(0));
  EXPECT_EQ(told(ends.ended(kEndedRun, "done")), std::vector{kEndedRun});
}

TEST(RunEnds, TheEndOfARunFromBeforeARestartIsToldWithoutItsName) {
  RunEnds ends(true);
  ends.known(kEndedRun);
  const RunEffects over = ends.ended(kEndedRun, "done");
  ASSERT_NE(find<TellEnded>(over), nullptr);
  EXPECT_EQ(find<TellEnded>(over)->end.name, "");
  RunEnds again(true);
  again.known(kEndedRun);
  again.opened(kEndedRun, "test", RoundId(5), model(4));
  EXPECT_EQ(find<TellEnded>(again.ended(kEndedRun, "stopped")), nullptr) << "after its last model";
}

// ---- another history ----------------------------------------------------------------------------------------------

TEST(RunEnds, TheLastModelOfTheHistoryBeforeIsNotWaitedFor) {
  RunEnds ends = opened();
  ends.committed(kEndedRun, RoundId(1), model(1));
  ends.ended(kEndedRun, "done");
  EXPECT_EQ(told(ends.history_entered()), std::vector{kEndedRun});
  EXPECT_EQ(ends.round(), RoundId(0));
}

TEST(RunEnds, NothingThatWasCommittedInTheHistoryBeforeIsTold) {
  RunEnds ends = opened();
  ends.committed(kEndedRun, RoundId(9), model(9));
  ends.history_entered();
  EXPECT_EQ(find<TellCommitted>(ends.model_held(model(9))), nullptr);
  ends.model_held(model(3));
  EXPECT_NE(find<TellCommitted>(ends.opened(kEndedRun, "test", RoundId(4), model(3))), nullptr)
      << "a lower round than before";
}

TEST(RunEnds, WhatIsReadInTheHistoryBeforeHoldsItsEndBack) {
  RunEnds ends = opened();
  ends.tasks_out(kEndedRun);
  ends.trained();
  ends.ended(kEndedRun, "stopped");
  EXPECT_EQ(told(ends.history_entered()), kNobody);
  EXPECT_EQ(told(ends.read()), std::vector{kEndedRun});
}

}  // namespace
}  // namespace fluvial::edge
