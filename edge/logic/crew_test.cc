#include "edge/logic/crew.h"

#include <gtest/gtest.h>

namespace fluvial::edge {
namespace {

using enum round::MissingWorkers;

std::vector<std::string> names(const std::vector<Unit>& units) {
  std::vector<std::string> list;
  for (const Unit& unit : units) list.push_back(unit.name);
  return list;
}

TEST(Crew, UnitsAreProcessesAndWholeGroupsByName) {
  Crew crew(2);
  crew.attached(MemberId(1), {"b"});
  crew.attached(MemberId(2), {"x", "a-group", 1, 2});
  crew.attached(MemberId(3), {"b"});
  EXPECT_EQ(names(crew.free_units()), (std::vector<std::string>{"b", "b"})) << "half of a group is nobody";
  crew.attached(MemberId(4), {"y", "a-group", 0, 2});
  EXPECT_EQ(names(crew.free_units()), (std::vector<std::string>{"a-group", "b", "b"}));
  EXPECT_EQ(crew.free_units()[0].members, (std::vector<MemberId>{MemberId(4), MemberId(2)})) << "by rank";
  crew.took(MemberId(2));
  EXPECT_EQ(names(crew.free_units()), (std::vector<std::string>{"b", "b"}));
  crew.answered(MemberId(2));
  crew.detached(MemberId(1));
  EXPECT_EQ(names(crew.free_units()), (std::vector<std::string>{"a-group", "b"}));
  EXPECT_EQ(crew.processes(), 3u);
}

TEST(Crew, AJobWaitsForAllUntilTheDeadline) {
  Crew crew(2);
  EXPECT_FALSE(crew.may_start(kContinue, true)) << "nobody is there";
  crew.attached(MemberId(1), {"a"});
  EXPECT_FALSE(crew.may_start(kContinue, false));
  EXPECT_TRUE(crew.may_start(kContinue, true));
  EXPECT_FALSE(crew.may_start(kDecline, true));
  crew.attached(MemberId(2), {"b"});
  EXPECT_TRUE(crew.may_start(kDecline, false));
}

TEST(Crew, NobodyWaitsTwiceForWhoIsNotThere) {
  Crew crew(2);
  crew.attached(MemberId(1), {"a"});
  crew.attached(MemberId(2), {"b"});
  crew.detached(MemberId(2));
  crew.went_short();
  EXPECT_TRUE(crew.may_start(kContinue, false));
  EXPECT_FALSE(crew.may_start(kDecline, false));
  crew.attached(MemberId(3), {"b"});
  crew.took(MemberId(3));
  EXPECT_FALSE(crew.may_start(kContinue, false)) << "it is there again: it is waited for";
}

TEST(Crew, WhoHangsIsNotWaitedForUntilItAnswers) {
  Crew crew(2);
  crew.attached(MemberId(1), {"a"});
  crew.attached(MemberId(2), {"b"});
  crew.took(MemberId(1));
  crew.took(MemberId(2));
  crew.answered(MemberId(1));
  crew.gave_up();
  crew.went_short();
  EXPECT_TRUE(crew.may_start(kContinue, false));
  crew.took(MemberId(1));
  EXPECT_FALSE(crew.may_start(kContinue, false)) << "a is working";
  crew.answered(MemberId(1));
  crew.answered(MemberId(2));
  crew.took(MemberId(2));
  EXPECT_FALSE(crew.may_start(kContinue, false)) << "b is back";
}

TEST(Crew, AWorkerThatSaysNoIsStillThere) {
  Crew crew(2);
  crew.attached(MemberId(1), {"a"});
  crew.attached(MemberId(2), {"b"});
  crew.went_short();  // b answered that it could not
  crew.took(MemberId(2));
  EXPECT_FALSE(crew.may_start(kContinue, false));
}

TEST(Judge, GoesWithAllOrNotAtAllWhereThePlanSaysDecline) {
  const auto verdict = [](std::vector<SlotState> slots, bool spare = false) { return judge(slots, kDecline, spare); };
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kDone}), Ruling::kGo);
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kWorking}), Ruling::kWait);
  EXPECT_EQ(verdict({SlotState::kWorking, SlotState::kFailed}), Ruling::kFail);
  EXPECT_EQ(verdict({SlotState::kWorking, SlotState::kOpen}), Ruling::kFail);
  EXPECT_EQ(verdict({SlotState::kWorking, SlotState::kOpen}, true), Ruling::kWait);
}

TEST(Judge, GoesOnWithThoseThatAreThereWhereItSaysContinue) {
  const auto verdict = [](std::vector<SlotState> slots, bool spare = false) { return judge(slots, kContinue, spare); };
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kDone}), Ruling::kGo);
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kWorking}), Ruling::kWait);
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kFailed}), Ruling::kGo);
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kOpen}), Ruling::kGo) << "nobody is waited for";
  EXPECT_EQ(verdict({SlotState::kDone, SlotState::kOpen}, true), Ruling::kWait);
  EXPECT_EQ(verdict({SlotState::kOpen, SlotState::kWorking}), Ruling::kWait);
  EXPECT_EQ(verdict({SlotState::kOpen, SlotState::kOpen}), Ruling::kWait) << "for somebody to attach";
  EXPECT_EQ(verdict({SlotState::kFailed, SlotState::kOpen}), Ruling::kFail);
  EXPECT_EQ(verdict({SlotState::kFailed, SlotState::kFailed}), Ruling::kFail);
}

}  // namespace
}  // namespace fluvial::edge
