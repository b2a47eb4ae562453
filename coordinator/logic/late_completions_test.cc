// A completion names what it completes: the completion of an earlier step, arrival or run does nothing.
#include "coordinator/logic/test_support.h"

namespace fluvial::coordinator {
namespace {

using LateCompletions = RunMachineTest;

const Error kFull{Code::kResourceExhausted, "no space left"};

// The machine stays as it is, whatever completion of these steps it hears of.
void expect_deaf(RunMachine& machine, const std::vector<Step>& before) {
  const TimePoint now(5s);
  for (const Step late : before) {
    EXPECT_TRUE(machine.attempt_recorded(late, now).empty());
    EXPECT_TRUE(machine.finalised(late, {RunId(1), ModelVersion(9), {}, 40}, now).empty());
    EXPECT_TRUE(machine.commit_recorded(late, now).empty());
    EXPECT_TRUE(machine.step_failed(late, kFull).empty());
    EXPECT_TRUE(machine.status_recorded(late, now).empty());
    EXPECT_TRUE(machine.status_failed(late, kFull, now).empty());
  }
}

TEST_F(LateCompletions, OfAnyStepBeforeDoNothingToTheOneThatIsUnderWay) {
  RunMachine machine(start());
  std::vector<Step> before{Step{}, {RunId(2), 1}};
  const auto next = [&](const char* what) {
    SCOPED_TRACE(what);
    expect_deaf(machine, before);
    EXPECT_TRUE(machine.awaits(machine.step()));
    expect_deaf(machine, {{RunId(2), machine.step().number}});  // of another run, with the same number
    for (const Step one : before) EXPECT_NE(one, machine.step()) << "no number twice";
    before.push_back(machine.step());
    return machine.step();
  };
  machine.sites_changed(sites(3), at(0s));
  machine.step_failed(next("an attempt that the journal does not take"), kFull);
  machine.status_recorded(next("the pause after it"), at(1s));
  machine.resume(at(2s));
  EXPECT_NE(find<RecordAttempt>(machine.status_recorded(next("a person's resume"), at(2s))), nullptr);
  EXPECT_NE(find<OpenRound>(machine.attempt_recorded(next("the attempt again"), at(3s))), nullptr);
  expect_deaf(machine, before);
  for (const RoundId round : {RoundId(1), RoundId(2)}) {
    bring(machine, round.value(), {1, 2, 3}, at(4s));
    const Step finalising = next("its model");
    EXPECT_NE(
        find<RecordCommit>(machine.finalised(finalising, {RunId(1), ModelVersion(round.value()), {}, 40}, at(4s))),
        nullptr);
    EXPECT_NE(find<Publish>(machine.commit_recorded(next("its commit"), at(4s))), nullptr);
    if (round == RoundId(1)) machine.attempt_recorded(next("the second round"), at(4s));
  }
  EXPECT_NE(find<TellStatus>(machine.status_recorded(next("the run's end"), at(5s))), nullptr);
  expect_deaf(machine, before);
  EXPECT_EQ(machine.model().version, ModelVersion(2));
  EXPECT_EQ(machine.status(), RunStatus::kDone);
}

TEST_F(LateCompletions, OfACommandDoNotAnswerTheNext) {
  RunMachine machine = opened();
  const Step opening = machine.step();
  machine.pause("by hand", at(1s));
  const Step pausing = machine.step();
  machine.resume(at(1s));
  EXPECT_NE(find<Answer>(machine.status_recorded(pausing, at(2s))), nullptr);
  expect_deaf(machine, {opening, pausing});
  EXPECT_NE(find<Answer>(machine.status_failed(machine.step(), kFull, at(3s))), nullptr) << "the resume's own";
}

TEST_F(LateCompletions, OfAnArrivalOfASumThatWasGivenUpBringNobody) {
  RunMachine machine = opened();
  for (const std::uint32_t id : {1U, 2U, 3U}) machine.arrived(ArrivalId(id), Arrival{set_of({id}), {}, {}});
  EXPECT_NE(find<RecordAttempt>(machine.take_failed(ArrivalId(1), {Code::kUnavailable, "disk"}, at(1s))), nullptr);
  machine.attempt_recorded(machine.step(), at(1s));
  EXPECT_TRUE(machine.taken(ArrivalId(2), set_of({2}), at(2s)).empty());
  EXPECT_TRUE(machine.take_failed(ArrivalId(3), {Code::kUnavailable, "disk"}, at(2s)).empty());
  EXPECT_TRUE(machine.gather().counted().empty());
  bring(machine, 4, {1, 2, 3}, at(3s));
  commit(machine, at(4s));
  machine.attempt_recorded(machine.step(), at(4s));
  EXPECT_TRUE(machine.taken(ArrivalId(4), set_of({1, 2, 3}), at(5s)).empty()) << "of the round before";
  EXPECT_TRUE(machine.take_failed(ArrivalId(4), {Code::kUnavailable, "disk"}, at(5s)).empty());
  EXPECT_TRUE(machine.gather().counted().empty());
  EXPECT_TRUE(machine.is_open());
}

}  // namespace
}  // namespace fluvial::coordinator
