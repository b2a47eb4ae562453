#include "aggregator/logic/region_machine.h"

#include <functional>

#include "aggregator/logic/test_region.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;
using round::Arrival;
using round::ContributorSet;

TEST(RegionMachine, SendsOnePartialWhenAllAreIn) {
  RegionMachine machine;
  const Effects opened = machine.opened(opening(), at(0s));
  EXPECT_EQ(all<OpenRound>(opened).size(), 1u);
  EXPECT_EQ(all<ResetSum>(opened).size(), 1u);
  EXPECT_TRUE(all<SendPartial>(bring(machine, 1, {1, 2}, at(1s))).empty());
  const auto sent = all<SendPartial>(bring(machine, 2, {3}, at(2s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].contributors, set_of({1, 2, 3}));
  EXPECT_TRUE(sent[0].missing.empty());
  EXPECT_EQ(all<ResetSum>(machine.receipt(sent[0].sequence, {}, {}, at(3s))).size(), 1u);
}

TEST(RegionMachine, ClosesAtItsDeadlineWithWhatItHasEvenNothing) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto sent = all<SendPartial>(machine.tick(at(9s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_TRUE(sent[0].contributors.empty());
  EXPECT_EQ(sent[0].missing.size(), 3u);
  machine.receipt(sent[0].sequence, {}, {}, at(9s));
  EXPECT_TRUE(machine.tick(at(10s)).empty()) << "nothing new to say";
  const auto late = all<SendPartial>(bring(machine, 1, {2}, at(11s)));
  ASSERT_EQ(late.size(), 1u) << "after the deadline what comes goes up at once";
  EXPECT_EQ(late[0].contributors, set_of({2}));
  EXPECT_GT(late[0].sequence, sent[0].sequence);
}

// A revocation costs no round its time.
// Otherwise the root of a deeper tree would wait for that site until its own deadline.
TEST(RegionMachine, WhoIsMissingBelowAChildIsReportedFurtherUp) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {SiteId(3)}}, at(2s));
  const auto sent = all<SendPartial>(machine.taken(ArrivalId(2), set_of({2}), at(2s)));
  ASSERT_EQ(sent.size(), 1u) << "nobody is left to wait for";
  EXPECT_EQ(sent[0].missing, std::vector{SiteId(3)});
}

TEST(RegionMachine, TheSumDoesNotChangeWhileItIsOnItsWay) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  const auto sent = all<SendPartial>(machine.tick(at(9s)));
  const Effects meanwhile = machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}}, at(9s));
  EXPECT_TRUE(all<Take>(meanwhile).empty());
  const Effects answered = machine.receipt(sent.at(0).sequence, {}, {}, at(10s));
  ASSERT_EQ(answered.size(), 3u);
  EXPECT_TRUE(std::holds_alternative<ResetSum>(answered[0])) << "first empty, then add";
  EXPECT_TRUE(std::holds_alternative<Release>(answered[1])) << "the parent has it";
  EXPECT_TRUE(std::holds_alternative<Take>(answered[2]));
}

TEST(RegionMachine, WhatBringsNobodyIsNotKeptFromAttemptToAttempt) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  ASSERT_EQ(all<SendPartial>(machine.tick(at(9s))).size(), 1u);
  for (std::uint32_t attempt = 2; attempt < 5; ++attempt) {  // the parent never answers
    machine.arrived(ArrivalId(attempt), Arrival{{}, {}, {SiteId(2)}}, at(9s));
    const auto dropped = all<Drop>(machine.opened(opening(attempt), at(10s)));
    ASSERT_EQ(dropped.size(), 1u);
    EXPECT_EQ(dropped[0].arrival, ArrivalId(attempt));
  }
}

TEST(RegionMachine, WhatWasSaidOfASiteInAnAttemptIsNotSaidOfTheNext) {
  const round::Refusal failed{SiteId(3), {Code::kInternal, "out of memory"}};
  const round::Refusal liar{SiteId(2), {Code::kConflict, "two contents"}};
  enum class Said { kNot, kWithoutASite, kWithASite };
  for (const Said said : {Said::kNot, Said::kWithoutASite, Said::kWithASite}) {
    RegionMachine machine;
    machine.opened(opening(), at(0s));
    if (said == Said::kWithASite) bring(machine, 1, {1}, at(1s));
    machine.refused(failed, at(1s));
    machine.refused(liar, at(1s));  // with a site in the sum and nobody left to wait for: the sum goes up
    if (said == Said::kWithoutASite) ASSERT_EQ(all<SendPartial>(machine.tick(at(9s))).at(0).refusals.size(), 2u);
    Opening second = opening(2);
    second.deadline = at(19s);
    auto sent = all<SendPartial>(machine.opened(second, at(9s)));
    EXPECT_EQ(sent.size(), said == Said::kWithASite ? 1u : 0u);
    EXPECT_TRUE(machine.admit(SiteId(3), Epoch(1), 10).ok()) << "it is asked again";
    if (sent.empty()) sent = all<SendPartial>(machine.tick(at(19s)));
    ASSERT_EQ(sent.size(), 1u);
    EXPECT_EQ(sent[0].refusals, std::vector{liar});
  }
}

// A parent does this only if it lies or has lost what it knew of the round.
TEST(RegionMachine, ARoundThatIsSaidToBeAboutSomethingElseBeginsAnew) {
  const std::vector<std::function<void(Subject&)>> changes = {
      [](Subject& subject) { subject.plan.chunk_values = 512; }, [](Subject& subject) { subject.plan.codec = "int8"; },
      [](Subject& subject) { subject.base.version = ModelVersion(3); }, [](Subject& subject) { ++subject.value_count; },
      [](Subject& subject) { ++subject.integer_count; }};
  for (const auto& change : changes) {
    RegionMachine machine;
    machine.opened(opening(), at(0s));
    bring(machine, 1, {1}, at(1s));
    machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}}, at(1s));
    Opening other = opening(2);
    change(other.subject);
    const Effects effects = machine.opened(other, at(2s));
    EXPECT_EQ(all<Release>(effects).size(), 1u) << "what is in the sum";
    EXPECT_EQ(all<Drop>(effects).size(), 1u) << "what was being added";
    EXPECT_EQ(all<ResetSum>(effects).size(), 1u);
    EXPECT_TRUE(all<Take>(effects).empty());
    EXPECT_TRUE(machine.gather().counted().empty());
    EXPECT_TRUE(machine.taken(ArrivalId(2), set_of({2}), at(2s)).empty());
    EXPECT_TRUE(machine.admit(SiteId(1), Epoch(1), 10).ok()) << "it is asked again";
  }
}

TEST(RegionMachine, ADeclineOfAnEarlierAttemptIsNotOneOfThis) {
  const round::Refusal failed{SiteId(3), {Code::kInternal, "out of memory"}};
  RegionMachine machine;
  EXPECT_TRUE(machine.declined(AttemptId(1), failed, at(0s)).empty()) << "no round is open";
  machine.opened(opening(2), at(0s));
  bring(machine, 1, {1, 2}, at(1s));
  EXPECT_TRUE(machine.declined(AttemptId(1), failed, at(1s)).empty());
  EXPECT_TRUE(machine.admit(SiteId(3), Epoch(1), 10).ok()) << "this attempt asks it again";
  const auto sent = all<SendPartial>(machine.declined(AttemptId(2), failed, at(2s)));
  ASSERT_EQ(sent.size(), 1u) << "nobody is left to wait for";
  EXPECT_EQ(sent[0].refusals, std::vector{failed});
  machine.opened(opening(3), at(10s));
  machine.declined(AttemptId(0), failed, at(11s));
  EXPECT_FALSE(machine.admit(SiteId(3), Epoch(1), 10).ok()) << "of a site of an earlier version: of this attempt";
}

TEST(RegionMachine, WhatBringsNobodyIsNotKeptOnceItIsTaken) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  for (std::uint64_t id = 2; id < 5; ++id) {  // a child that comes back again and again, with a refusal each time
    machine.arrived(ArrivalId(id), Arrival{{}, {{SiteId(2), {Code::kInvalidArgument, "weight"}}}, {}}, at(2s));
    const auto released = all<Release>(machine.taken(ArrivalId(id), {}, at(2s)));
    ASSERT_EQ(released.size(), 1u);
    EXPECT_EQ(released[0].arrival, ArrivalId(id));
  }
  const auto sent = all<SendPartial>(machine.tick(at(9s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].refusals.size(), 1u) << "what it said is kept";
}

TEST(RegionMachine, ASiteIsReportedOnceHoweverOftenItIsRefused) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  machine.refused({SiteId(3), {Code::kInvalidArgument, "too heavy"}}, at(1s));
  machine.refused({SiteId(3), {Code::kConflict, "two contents"}}, at(2s));
  machine.refused({SiteId(3), {Code::kInvalidArgument, "too heavy"}}, at(3s));
  const auto sent = all<SendPartial>(bring(machine, 1, {1, 2}, at(4s)));
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].refusals.size(), 1u);
  EXPECT_EQ(sent[0].refusals[0].error.code, Code::kConflict);
}

// Or whoever contradicts itself need only say so once more, without showing it.
TEST(RegionMachine, AConflictThatIsShownStaysShown) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  machine.refused({SiteId(3), {Code::kConflict, "two contents"}, {}, std::vector<round::Contribution>(2)}, at(1s));
  machine.refused({SiteId(3), {Code::kConflict, "two contents"}}, at(2s));
  const auto sent = all<SendPartial>(bring(machine, 1, {1, 2}, at(3s)));
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].refusals.size(), 1u);
  EXPECT_EQ(sent[0].refusals[0].proof.size(), 2u);
}

TEST(RegionMachine, WhatWaitedForAReportThatWasRefusedIsTakenAndGoesUp) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto nobody = all<SendPartial>(machine.tick(at(9s)));  // all three are missing
  ASSERT_EQ(nobody.size(), 1u);
  EXPECT_TRUE(all<Take>(machine.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}}, at(9s))).empty());
  const Effects refused =
      machine.receipt(nobody[0].sequence, Error{Code::kPermissionDenied, "site 3 is elsewhere"}, {SiteId(3)}, at(10s));
  ASSERT_EQ(all<Take>(refused).size(), 1u);
  const auto sent = all<SendPartial>(machine.taken(ArrivalId(1), set_of({1}), at(10s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].contributors, set_of({1}));
}

TEST(RegionMachine, ASiteThatWillNotBeInIsReportedAndNotWaitedFor) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1, 2}, at(1s));
  const auto sent = all<SendPartial>(machine.refused({SiteId(3), {Code::kDataLoss, "NaN"}}, at(2s)));
  ASSERT_EQ(sent.size(), 1u);
  ASSERT_EQ(sent[0].refusals.size(), 1u);
  EXPECT_EQ(sent[0].refusals[0].site, SiteId(3));
}

TEST(RegionMachine, AfterAReconnectWhatTheParentDoesNotHoldGoesUpAgain) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto first = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  ASSERT_EQ(first.size(), 1u);
  const Effects again = machine.opened(opening(2), at(2s));
  const auto second = all<SendPartial>(again);
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].contributors, first[0].contributors);
  EXPECT_TRUE(all<ResetSum>(again).empty());
  EXPECT_TRUE(machine.receipt(first[0].sequence, {}, {}, at(3s)).empty()) << "the answer to a partial of before";
}

TEST(RegionMachine, AfterAReconnectWhatTheParentHoldsIsNotSentTwice) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1, 2, 3}, at(1s));
  const Effects again = machine.opened(opening(1, {SiteId(1), SiteId(2), SiteId(3)}), at(2s));
  for (const SendPartial& partial : all<SendPartial>(again)) EXPECT_TRUE(partial.contributors.empty());
  EXPECT_EQ(all<ResetSum>(again).size(), 1u);
}

TEST(RegionMachine, WhatACrashedParentLostIsAskedForAgain) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto sent = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  machine.receipt(sent.at(0).sequence, {}, {}, at(2s));
  machine.opened(opening(2, {}), at(3s));
  EXPECT_EQ(machine.gather().awaited().size(), 3u);
  EXPECT_TRUE(machine.admit(SiteId(1), Epoch(1), 10).ok());
}

TEST(RegionMachine, AfterAReconnectTheSameSealKeepsItsNumber) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto first = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  const auto second = all<SendPartial>(machine.opened(opening(), at(2s)));
  ASSERT_EQ(second.size(), 1u);
  EXPECT_EQ(second[0].sequence, first.at(0).sequence) << "so that the transfer may go on where it stopped";
}

// A new term of the coordinator may lower the scale: sums of two scales never meet.
TEST(RegionMachine, AtAnotherScaleTheRoundBeginsAnew) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  ASSERT_EQ(all<SendPartial>(machine.tick(at(9s))).size(), 1u);
  machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}}, at(9s));
  Opening lowered = opening(2);
  lowered.epoch = Epoch(2);
  lowered.scale_bits = 19;
  const Effects opened = machine.opened(lowered, at(10s));
  EXPECT_EQ(all<Release>(opened).size(), 1u);
  EXPECT_EQ(all<Drop>(opened).size(), 1u);
  ASSERT_EQ(all<ResetSum>(opened).size(), 1u);
  EXPECT_EQ(all<ResetSum>(opened)[0].scale_bits, 19);
  EXPECT_EQ(all<OpenRound>(opened).size(), 1u);
  EXPECT_TRUE(machine.gather().counted().empty()) << "the sites are asked for what they still have";
  EXPECT_EQ(machine.gather().awaited().size(), 3u);
}

TEST(RegionMachine, AnOpeningForAnotherSiteDoesNotDisturbAPartialOnItsWay) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1, 2, 3}, at(1s));
  Opening more = opening();
  more.same_session = true;
  more.participants.push_back({SiteId(4), Epoch(1), 100});
  EXPECT_TRUE(all<SendPartial>(machine.opened(more, at(2s))).empty());
  more.attempt = AttemptId(2);
  EXPECT_EQ(all<SendPartial>(machine.opened(more, at(3s))).size(), 1u) << "but an attempt makes it stale";
}

// Takes again every arrival that the effects name, as a service does.
Effects take_again(RegionMachine& machine, const Effects& effects, std::map<std::uint64_t, ContributorSet> staged) {
  Effects last;
  for (const Take& take : all<Take>(effects)) {
    last = machine.taken(take.arrival, staged.at(take.arrival.value()), at(3s));
  }
  return last;
}

TEST(RegionMachine, WhoIsHeldByAnotherWayLeavesTheSumAndTheOthersGoUpAtOnce) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  bring(machine, 2, {2}, at(1s));
  const auto sent = all<SendPartial>(bring(machine, 3, {3}, at(1s)));
  const Effects refused = machine.receipt(sent.at(0).sequence, Error{Code::kAlreadyExists, "2"}, {SiteId(2)}, at(2s));
  EXPECT_EQ(all<ResetSum>(refused).size(), 1u);
  ASSERT_EQ(all<Release>(refused).size(), 1u);
  EXPECT_EQ(all<Release>(refused)[0].arrival, ArrivalId(2));
  EXPECT_TRUE(all<OpenRound>(refused).empty()) << "nobody has to send again";
  const auto rest = all<SendPartial>(take_again(machine, refused, {{1, set_of({1})}, {3, set_of({3})}}));
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].contributors, set_of({1, 3}));
  EXPECT_GT(rest[0].sequence, sent[0].sequence);
  const Effects accepted = machine.receipt(rest[0].sequence, {}, {}, at(4s));
  EXPECT_EQ(all<Release>(accepted).size(), 2u);
}

TEST(RegionMachine, AChildsPartialThatOverlapsIsGivenUpAndItsOthersAreAskedAgain) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {3}, at(1s));
  const auto sent = all<SendPartial>(bring(machine, 2, {1, 2}, at(1s)));
  const Effects refused = machine.receipt(sent.at(0).sequence, Error{Code::kAlreadyExists, "2"}, {SiteId(2)}, at(2s));
  EXPECT_EQ(all<OpenRound>(refused).size(), 1u) << "site 1 is not counted: its parent has to bring it again";
  take_again(machine, refused, {{1, set_of({3})}});
  EXPECT_EQ(machine.gather().counted(), (std::vector{SiteId(2), SiteId(3)}));
  const auto rest = all<SendPartial>(bring(machine, 3, {1}, at(3s)));
  ASSERT_EQ(rest.size(), 1u);
  EXPECT_EQ(rest[0].contributors, set_of({1, 3}));
}

TEST(RegionMachine, ASiteThatMovedAwayLeavesTheSumBeforeItIsSent) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  bring(machine, 2, {2}, at(1s));
  Opening again = opening();
  again.participants.erase(again.participants.begin());
  again.gone = {SiteId(1)};
  const Effects effects = machine.opened(again, at(2s));
  EXPECT_EQ(all<Release>(effects).size(), 1u);
  take_again(machine, effects, {{2, set_of({2})}});
  EXPECT_FALSE(machine.gather().is_participant(SiteId(1)));
  EXPECT_EQ(machine.admit(SiteId(1), Epoch(1), 10).error().code, Code::kFailedPrecondition);
  const auto sent = all<SendPartial>(bring(machine, 3, {3}, at(3s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].contributors, set_of({2, 3}));
}

TEST(RegionMachine, UnderANewLeaseTheOldContributionIsFencedAndTheSiteAwaited) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}}, at(1s));  // being added
  Opening again = opening();
  again.participants[0].lease = Epoch(7);
  EXPECT_TRUE(all<ResetSum>(machine.opened(again, at(2s))).empty()) << "not while something is being added";
  const Effects effects = machine.taken(ArrivalId(2), set_of({2}), at(2s));
  EXPECT_EQ(all<ResetSum>(effects).size(), 1u);
  take_again(machine, effects, {{2, set_of({2})}});
  EXPECT_EQ(machine.admit(SiteId(1), Epoch(1), 10).error().code, Code::kStale);
  EXPECT_TRUE(machine.admit(SiteId(1), Epoch(7), 10).ok());
}

TEST(RegionMachine, ASumThatADiskSpoiltIsMadeAgainWithoutWhatItDidNotGiveBack) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  machine.arrived(ArrivalId(2), Arrival{set_of({2}), {}, {}}, at(2s));
  machine.arrived(ArrivalId(3), Arrival{set_of({3}), {}, {}}, at(2s));
  const Error disk{Code::kUnavailable, "the disk failed"};
  const Effects failed = machine.take_failed(ArrivalId(2), disk, at(3s));
  ASSERT_EQ(all<Drop>(failed).size(), 1u);
  EXPECT_EQ(all<Drop>(failed)[0].error, disk);
  EXPECT_TRUE(all<ResetSum>(failed).empty()) << "not while another is being added";
  const Effects again = machine.taken(ArrivalId(3), set_of({3}), at(4s));
  EXPECT_EQ(all<ResetSum>(again).size(), 1u);
  const auto taken = all<Take>(again);
  ASSERT_EQ(taken.size(), 2u) << "both that are whole";
  EXPECT_TRUE(all<SendPartial>(again).empty());
  machine.taken(ArrivalId(1), set_of({1}), at(5s));
  const auto sent = all<SendPartial>(machine.taken(ArrivalId(3), set_of({3}), at(5s)));
  ASSERT_EQ(sent.size(), 1u) << "the one whose disk failed is not waited for";
  EXPECT_EQ(sent[0].contributors, set_of({1, 3}));
  ASSERT_EQ(sent[0].refusals.size(), 1u);
  EXPECT_EQ(sent[0].refusals[0], (round::Refusal{SiteId(2), disk}));
  machine.receipt(sent[0].sequence, {}, {}, at(6s));
  machine.opened(opening(2, {SiteId(1), SiteId(3)}), at(10s));
  EXPECT_EQ(machine.gather().awaited(), std::vector{SiteId(2)}) << "the next attempt asks it again";
}

TEST(RegionMachine, AParentWhoseDiskFailedIsTriedAgainLater) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto sent = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  const Effects refused = machine.receipt(sent.at(0).sequence, Error{Code::kUnavailable, "disk"}, {}, at(2s));
  ASSERT_EQ(all<SetTimer>(refused).size(), 1u);
  const auto again = all<SendPartial>(machine.tick(all<SetTimer>(refused)[0].at));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].sequence, sent[0].sequence);
}

TEST(RegionMachine, AParentWithoutRoomIsTriedAgainLater) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto sent = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  const Effects full = machine.receipt(sent.at(0).sequence, Error{Code::kResourceExhausted, "disk full"}, {}, at(2s));
  ASSERT_EQ(all<SetTimer>(full).size(), 1u);
  EXPECT_TRUE(all<SendPartial>(full).empty());
  const auto again = all<SendPartial>(machine.tick(all<SetTimer>(full)[0].at));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].contributors, set_of({1, 2, 3}));
}

TEST(RegionMachine, ASumThatNobodyWillTakeIsGivenUpWithAReason) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  const auto sent = all<SendPartial>(bring(machine, 1, {1, 2, 3}, at(1s)));
  const Effects refused = machine.receipt(sent.at(0).sequence, Error{Code::kInvalidArgument, "scale"}, {}, at(2s));
  EXPECT_EQ(all<Release>(refused).size(), 1u);
  const auto told = all<SendPartial>(refused);
  ASSERT_EQ(told.size(), 1u);
  EXPECT_TRUE(told[0].contributors.empty());
  EXPECT_EQ(told[0].refusals.size(), 3u);
  machine.receipt(told[0].sequence, {}, {}, at(2s));
  machine.opened(opening(2), at(3s));
  EXPECT_EQ(machine.gather().awaited().size(), 3u) << "the next attempt asks them again";
}

TEST(RegionMachine, FencesAttemptsAndDropsWhatComesForAClosedRound) {
  RegionMachine machine;
  EXPECT_EQ(machine.admit(SiteId(1), Epoch(1), 1).error().code, Code::kStale);
  machine.opened(opening(2), at(0s));
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(1), Epoch(1), set_of({1})).error().code, Code::kStale);
  EXPECT_TRUE(machine.admit(RoundId(1), AttemptId(2), Epoch(1), set_of({1})).ok());
  machine.closed();
  const auto dropped = all<Drop>(machine.arrived(ArrivalId(1), Arrival{set_of({1}), {}, {}}, at(1s)));
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].error.code, Code::kStale);
}

TEST(RegionMachine, ASiteThatComesBackBelowIsAwaited) {
  RegionMachine machine;
  Opening two = opening();
  two.participants.pop_back();
  machine.opened(two, at(0s));
  EXPECT_EQ(machine.admit(SiteId(3), Epoch(1), 10).error().code, Code::kFailedPrecondition);
  machine.opened(opening(), at(1s));
  EXPECT_TRUE(machine.admit(SiteId(3), Epoch(1), 10).ok());
}

TEST(RegionMachine, AdmitsAPartialOfTheOpenAttemptAndEpochAlone) {
  RegionMachine machine;
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(1), Epoch(1), set_of({1})).error().code, Code::kStale)
      << "nothing is open";
  machine.opened(opening(), at(0s));
  EXPECT_TRUE(machine.admit(RoundId(1), AttemptId(1), Epoch(1), set_of({1})).ok());
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(1), Epoch(2), set_of({1})).error().code, Code::kStale);
  EXPECT_EQ(machine.admit(RoundId(1), AttemptId(2), Epoch(1), set_of({1})).error().code, Code::kStale);
}

TEST(RegionMachine, ARefusalGoesUpWithThePartialThatReplacesTheRefusedOne) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  bring(machine, 2, {2}, at(1s));
  const round::Refusal damaged{SiteId(3), {Code::kDataLoss, "NaN"}};
  const auto sent = all<SendPartial>(machine.refused(damaged, at(2s)));
  ASSERT_EQ(sent.size(), 1u);
  EXPECT_EQ(sent[0].refusals, std::vector{damaged});
  machine.receipt(sent[0].sequence, Error{Code::kAlreadyExists, "site 1 is counted already"}, {SiteId(1)}, at(3s));
  const auto again = all<SendPartial>(machine.taken(ArrivalId(2), set_of({2}), at(3s)));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].contributors, set_of({2}));
  EXPECT_EQ(again[0].refusals, std::vector{damaged}) << "else the root would count the site as late";
}

TEST(RegionMachine, AfterAReconnectWhoIsCountedByAnotherWayLeavesTheSumAndTheOthersStay) {
  RegionMachine machine;
  machine.opened(opening(), at(0s));
  bring(machine, 1, {1}, at(1s));
  bring(machine, 2, {2}, at(1s));
  ASSERT_EQ(all<SendPartial>(machine.tick(at(9s))).size(), 1u);
  const Effects back = machine.opened(opening(1, {SiteId(1)}), at(10s));
  EXPECT_TRUE(all<SendPartial>(back).empty()) << "what was sent holds a site that is counted";
  ASSERT_EQ(all<Take>(back).size(), 1u);
  EXPECT_EQ(all<Take>(back)[0].arrival, ArrivalId(2));
  const auto again = all<SendPartial>(machine.taken(ArrivalId(2), set_of({2}), at(11s)));
  ASSERT_EQ(again.size(), 1u);
  EXPECT_EQ(again[0].contributors, set_of({2}));
}

}  // namespace
}  // namespace fluvial::aggregator
