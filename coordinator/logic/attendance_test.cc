// Who is known not to come is asked, and not waited for (core/round/attendance.h).
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "coordinator/logic/test_support.h"

namespace fluvial::coordinator {
namespace {

using ::testing::ElementsAre;
using ::testing::UnorderedElementsAre;

class AttendedRounds : public RunMachineTest {
 protected:
  static RunMachine many_rounds(std::uint64_t quorum = 2) {
    RunStart begin = start();
    begin.plan.rounds = 50;
    begin.plan.quorum = quorum;
    begin.plan.adaptive_deadlines = false;
    begin.plan.attempts_max = 20;
    RunMachine machine(begin);
    machine.begin(at(0s));
    machine.sites_changed(sites(3), at(0s));
    machine.attempt_recorded(machine.step(), at(0s));
    return machine;
  }
  // Sites 1 and 2 are in after a second. Whether the round then waits for site 3, which does not come.
  bool waits(RunMachine& machine) {
    const TimePoint opened = machine.opened_at();
    ContributorSet in = set_of({1, 2});
    in.spend({.train = 1s});
    EXPECT_NE(find<Take>(machine.arrived(ArrivalId(++arrival_), Arrival{in, {}, {}})), nullptr);
    bool closes = find<Finalise>(machine.taken(ArrivalId(arrival_), in, opened + 1s)) != nullptr;
    const bool waited = !closes;
    if (waited) closes = find<Finalise>(machine.tick(opened + 10s)) != nullptr;
    EXPECT_TRUE(closes);
    const TimePoint now = opened + (waited ? 10s : 1s);
    const ModelVersion next(machine.last_committed().value() + 1);
    machine.finalised(machine.step(), {RunId(1), next, {}, 40}, now);
    machine.commit_recorded(machine.step(), now);
    machine.attempt_recorded(machine.step(), now);
    return waited;
  }
  std::uint64_t arrival_ = 0;
};

TEST_F(AttendedRounds, ASilentMemberCostsThreeSoftDeadlinesAndNoMore) {
  RunMachine machine = many_rounds();
  std::vector<bool> waited;
  for (int i = 0; i < 5; ++i) waited.push_back(waits(machine));
  EXPECT_THAT(waited, ElementsAre(true, true, true, false, false));
  EXPECT_EQ(machine.attempt().participants.size(), 3U) << "it is asked, and the scale has room for it";
  EXPECT_TRUE(machine.admit(SiteId(3), Epoch(1), 100).ok()) << "what it brings is taken";
  EXPECT_EQ(machine.attendance().of(SiteId(3)), round::Expected::kSilent);
  EXPECT_EQ(machine.pace().find(SiteId(3)), nullptr) << "nobody knows how fast it is";
  machine.heard(SiteId(3));
  EXPECT_TRUE(waits(machine)) << "from the round on in which it was heard of";
}

TEST_F(AttendedRounds, TheQuorumIsNotLoweredByASilentMember) {
  RunMachine machine = many_rounds(3);
  bring(machine, ++arrival_, {1, 2}, at(1s));
  for (std::uint32_t i = 0; i < 2 * round::kSilentFrom; ++i) {
    const TimePoint end = machine.hard_deadline();
    EXPECT_NE(find<RecordAttempt>(machine.tick(end)), nullptr) << "two of three needed";
    machine.attempt_recorded(machine.step(), end);
  }
  EXPECT_EQ(machine.attendance().of(SiteId(3)), round::Expected::kSilent);
}

TEST_F(AttendedRounds, ASiteWithoutAWorkerIsNotWaitedForAndNoStraggler) {
  RunMachine machine = many_rounds();
  machine.has_workers(SiteId(3), false);
  EXPECT_TRUE(waits(machine)) << "it may just be starting";
  for (int i = 0; i < 5; ++i) EXPECT_FALSE(waits(machine));
  EXPECT_EQ(machine.pace().find(SiteId(3)), nullptr) << "it is not slow";
  machine.has_workers(SiteId(3), true);
  EXPECT_THAT(machine.gather().awaited(), UnorderedElementsAre(SiteId(1), SiteId(2), SiteId(3)));
  EXPECT_TRUE(waits(machine));
  EXPECT_NE(machine.pace().find(SiteId(3)), nullptr) << "with a worker it is";
}

TEST_F(AttendedRounds, TheNextAttemptDoesNotWaitForItEither) {
  RunMachine machine = many_rounds();
  machine.has_workers(SiteId(3), false);
  waits(machine);
  machine.tick(machine.hard_deadline());
  machine.attempt_recorded(machine.step(), machine.hard_deadline());
  ASSERT_EQ(machine.attempt().attempt, AttemptId(2));
  EXPECT_THAT(machine.gather().awaited(), UnorderedElementsAre(SiteId(1), SiteId(2)));
}

TEST_F(AttendedRounds, ARestartedCoordinatorLearnsItAnew) {
  RunMachine machine = many_rounds();
  for (int i = 0; i < 3; ++i) waits(machine);
  ASSERT_EQ(machine.attendance().of(SiteId(3)), round::Expected::kSilent);
  RunMachine restarted = many_rounds();
  EXPECT_TRUE(waits(restarted));
}

}  // namespace
}  // namespace fluvial::coordinator
