// Windows, at an aggregator (docs/design/windows.md): what is here goes over from one into the next.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "aggregator/logic/test_region.h"

namespace fluvial::aggregator {
namespace {

using namespace std::chrono_literals;
using ::testing::ElementsAre;
using ::testing::SizeIs;

std::vector<std::uint32_t> ids(const round::ContributorSet& set) {
  std::vector<std::uint32_t> ids;
  for (const auto& [site, entry] : set.entries()) ids.push_back(site.value());
  return ids;
}

Opening window(std::uint64_t round, std::set<SiteId> counted = {}) {
  Opening made = opening(1, std::move(counted), round);
  made.same_session = true;
  made.subject.base = {RunId(1), ModelVersion(round - 1), {}, 40};
  made.subject.late = round::Lateness{4, round::staleness_factors(4, 0.5), {}, 2};
  return made;
}

round::ContributorSet of(std::initializer_list<std::uint32_t> sites, std::uint64_t base, std::uint64_t admitted) {
  round::ContributorSet set;
  for (const std::uint32_t site : sites) {
    round::Contribution one{SiteId(site), Epoch(1), 10, {}, 0, {}};
    one.base = ModelVersion(base);
    one.admitted = ModelVersion(admitted);
    EXPECT_TRUE(set.add(one).ok());
  }
  return set;
}

class RegionWindows : public testing::Test {
 protected:
  RegionWindows() { machine_.opened(window(5), at(0s)); }
  Effects take(std::uint64_t id, const round::ContributorSet& in) {
    EXPECT_THAT(all<Take>(machine_.arrived(ArrivalId(id), round::Arrival{in, {}, {}}, at(1s))), SizeIs(1));
    return machine_.taken(ArrivalId(id), in, at(1s));
  }
  Effects queue(std::uint64_t id, const round::ContributorSet& in) {
    return machine_.arrived(ArrivalId(id), round::Arrival{in, {}, {}}, at(1s));
  }
  RegionMachine machine_;
};

TEST_F(RegionWindows, WhatIsHereGoesUpAtOnce) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  ASSERT_THAT(sent, SizeIs(1));
  EXPECT_THAT(ids(sent[0].contributors), ElementsAre(1));
  EXPECT_TRUE(sent[0].missing.empty()) << "the others may still come";
}

Opening sharing(std::uint64_t round, std::uint32_t share) {
  Opening made = window(round);
  for (round::Participant& one : made.participants) one.share = share;
  return made;
}

round::ContributorSet with_share(std::uint32_t site, std::uint64_t version, std::uint32_t share) {
  round::ContributorSet set = of({site}, version, version);
  set.admitted_with(SiteId(site), share);
  return set;
}

// What a child says of a share is held to what the openings named: else all that goes up with it would be turned away.
TEST_F(RegionWindows, AShareIsOneThatAnOpeningNamed) {
  machine_.opened(sharing(6, 48), at(1s));
  machine_.opened(sharing(7, 32), at(2s));
  EXPECT_THAT(machine_.miscounted(with_share(1, 6, 32)), SizeIs(0));
  EXPECT_THAT(machine_.miscounted(with_share(1, 6, 48)), ElementsAre(SiteId(1)));
  EXPECT_THAT(machine_.miscounted(with_share(1, 5, 48)), SizeIs(0)) << "of the window before";
  EXPECT_THAT(machine_.miscounted(with_share(1, 5, 32)), ElementsAre(SiteId(1)));
  EXPECT_THAT(machine_.miscounted(with_share(1, 2, 77)), SizeIs(0)) << "nothing is known of that window";
  EXPECT_THAT(machine_.miscounted(with_share(99, 6, 77)), SizeIs(0)) << "nor of that site";
  const Effects told = queue(1, with_share(1, 6, 48));
  ASSERT_THAT(all<Drop>(told), SizeIs(1));
  EXPECT_EQ(all<Drop>(told)[0].error.code, Code::kStale);
  EXPECT_EQ(machine_.admit(RoundId(7), machine_.opening().attempt, machine_.opening().epoch, with_share(1, 6, 48))
                .error()
                .code,
            Code::kStale);
  EXPECT_THAT(all<Take>(queue(2, with_share(1, 6, 32))), SizeIs(1));
}

TEST_F(RegionWindows, WithoutWindowsEachCountsWhole) {
  RegionMachine rounds;
  rounds.opened(opening(1, {}, 5), at(0s));
  EXPECT_THAT(rounds.miscounted(with_share(1, 0, 48)), ElementsAre(SiteId(1)));
  EXPECT_THAT(rounds.miscounted(with_share(1, 0, round::kWholeFactor)), SizeIs(0));
}

// While one is on its way the next fills: the slower the line, the more goes together.
TEST_F(RegionWindows, WhatComesMeanwhileGoesTogether) {
  const auto first = all<SendPartial>(take(1, of({1}, 4, 4)));
  EXPECT_TRUE(queue(2, of({2}, 4, 4)).empty());
  EXPECT_TRUE(queue(3, of({3}, 3, 4)).empty());
  const Effects accepted = machine_.receipt(first[0].sequence, {}, {}, at(2s));
  EXPECT_THAT(all<Take>(accepted), SizeIs(2));
  EXPECT_TRUE(all<SendPartial>(machine_.taken(ArrivalId(2), of({2}, 4, 4), at(2s))).empty());
  const auto second = all<SendPartial>(machine_.taken(ArrivalId(3), of({3}, 3, 4), at(2s)));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_THAT(ids(second[0].contributors), ElementsAre(2, 3));
}

TEST(RegionsOfWindows, TakesWhatIsJustOldEnough) {
  RegionMachine machine;
  machine.opened(window(9), at(0s));
  EXPECT_TRUE(machine.takes(RunId(1), RoundId(5), false)) << "the staleness is 4 at most";
  EXPECT_FALSE(machine.takes(RunId(1), RoundId(4), false));
}

TEST_F(RegionWindows, APartialOnItsWayStaysOnItsWay) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  queue(2, of({2}, 4, 4));
  const Effects next = machine_.opened(window(6), at(2s));
  EXPECT_TRUE(all<SendPartial>(next).empty()) << "it is not sent twice";
  EXPECT_TRUE(all<ResetSum>(next).empty()) << "it is being read";
  EXPECT_TRUE(all<Drop>(next).empty());
  EXPECT_TRUE(all<Release>(next).empty());
  EXPECT_THAT(all<OpenRound>(next), SizeIs(1));
  EXPECT_TRUE(machine_.gather().is_counted(SiteId(2))) << "its site need not send again";
  EXPECT_THAT(all<Take>(machine_.receipt(sent[0].sequence, {}, {}, at(3s))), SizeIs(1));
  const auto second = all<SendPartial>(machine_.taken(ArrivalId(2), of({2}, 4, 4), at(3s)));
  ASSERT_THAT(second, SizeIs(1));
  EXPECT_THAT(ids(second[0].contributors), ElementsAre(2)) << "admitted in the window before";
}

// The window before counted what the parent held; its sites are asked for their next.
TEST_F(RegionWindows, WhoWasCountedIsAwaitedAgain) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  machine_.receipt(sent[0].sequence, {}, {}, at(1s));
  EXPECT_TRUE(machine_.gather().is_counted(SiteId(1)));
  machine_.opened(window(6), at(2s));
  EXPECT_FALSE(machine_.gather().is_counted(SiteId(1)));
  EXPECT_THAT(all<SendPartial>(take(2, of({1}, 5, 5))), SizeIs(1));
}

TEST_F(RegionWindows, WhatTheParentHoldsForTheNextIsCountedThere) {
  take(1, of({1}, 4, 4));
  const Effects next = machine_.opened(window(6, {SiteId(1)}), at(2s));
  EXPECT_THAT(all<Release>(next), SizeIs(1)) << "the receipt is on its way, or lost";
  EXPECT_TRUE(machine_.gather().is_counted(SiteId(1)));
}

// A parent that has gone on too far takes it no more.
TEST_F(RegionWindows, WhatCanNoLongerEnterIsAskedForAgain) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  machine_.opened(window(6), at(2s));
  machine_.opened(window(7), at(2s));
  const Effects next = machine_.opened(window(8), at(2s));
  EXPECT_THAT(all<ResetSum>(next), SizeIs(1)) << "three windows later: its sum is made without it";
  EXPECT_FALSE(machine_.gather().is_counted(SiteId(1)));
  EXPECT_TRUE(all<SendPartial>(next).empty());
  EXPECT_THAT(all<SendPartial>(take(2, of({1}, 4, 7))), SizeIs(1)) << "older by its site's word, and fresh from here";
}

TEST_F(RegionWindows, AParentThatTakesItNoMoreIsNotAskedForEver) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  machine_.opened(window(6), at(2s));
  const Effects stale = machine_.receipt(sent[0].sequence, Error{Code::kStale, "too old"}, {}, at(2s));
  EXPECT_THAT(all<ResetSum>(stale), SizeIs(1));
  EXPECT_THAT(all<OpenRound>(stale), SizeIs(1)) << "its site is asked to send it again";
  EXPECT_FALSE(machine_.gather().is_counted(SiteId(1)));
}

TEST_F(RegionWindows, WhoTakesNoPartAnyMoreLeaves) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  Opening next = window(6);
  std::erase_if(next.participants, [](const round::Participant& one) { return one.site == SiteId(1); });
  EXPECT_THAT(all<ResetSum>(machine_.opened(next, at(2s))), SizeIs(1));
  EXPECT_FALSE(machine_.gather().is_participant(SiteId(1)));
}

TEST_F(RegionWindows, SumsOfAnotherScaleDoNotGoOver) {
  take(1, of({1}, 4, 4));
  Opening next = window(6);
  next.scale_bits = 19;
  EXPECT_FALSE(machine_.goes_over(next));
  const Effects opened = machine_.opened(next, at(2s));
  EXPECT_THAT(all<Release>(opened), SizeIs(1)) << "its site sends it again";
  EXPECT_THAT(all<ResetSum>(opened), SizeIs(1));
}

TEST_F(RegionWindows, ASchedulesNumberIsNoOtherPlan) {
  Opening next = window(6);
  next.subject.plan.worker.values["lr"] = 0.5;
  EXPECT_TRUE(machine_.goes_over(next));
  next.subject.plan.codec = "int8";
  EXPECT_FALSE(machine_.goes_over(next));
}

TEST_F(RegionWindows, RoundsDoNotGoOver) {
  RegionMachine machine;
  machine.opened(opening(1, {}, 1), at(0s));
  EXPECT_FALSE(machine.goes_over(opening(1, {}, 2)));
  EXPECT_TRUE(all<SendPartial>(bring(machine, 1, {1}, at(1s))).empty()) << "it waits for the others";
}

TEST_F(RegionWindows, TakesWhatWasMadeForOneShortlyBefore) {
  machine_.opened(window(7), at(2s));
  EXPECT_TRUE(machine_.takes(RunId(1), RoundId(7), false));
  EXPECT_TRUE(machine_.takes(RunId(1), RoundId(5), false));
  EXPECT_FALSE(machine_.takes(RunId(1), RoundId(2), false)) << "more than staleness_max";
  EXPECT_FALSE(machine_.takes(RunId(2), RoundId(7), false));
  EXPECT_TRUE(machine_.admit(RoundId(6), AttemptId(4), Epoch(1), of({2}, 5, 5)).ok());
  EXPECT_EQ(machine_.admit(RoundId(6), AttemptId(4), Epoch(1), of({2}, 3, 3)).error().code, Code::kStale);
  EXPECT_TRUE(machine_.admit(RoundId(7), AttemptId(4), Epoch(1), of({2}, 5, 5)).ok()) << "an attempt is no barrier";
  EXPECT_EQ(machine_.admit(RoundId(7), AttemptId(4), Epoch(2), of({2}, 5, 5)).error().code, Code::kStale);
}

// The timer is set for the window's end by then.
TEST_F(RegionWindows, WhatTheParentHadNoRoomForIsSentWithTheNext) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  machine_.receipt(sent[0].sequence, Error{Code::kResourceExhausted, "no room"}, {}, at(1s));
  EXPECT_THAT(all<SendPartial>(machine_.opened(window(6), at(1s))), SizeIs(1));
}

TEST_F(RegionWindows, ARefusalStaysThatOfItsWindow) {
  take(1, of({1}, 4, 4));
  machine_.refused({SiteId(2), {Code::kConflict, "two contents"}}, at(1s));
  machine_.opened(window(6), at(2s));
  Opening next = window(7);
  next.same_session = false;
  machine_.opened(next, at(2s));
  const auto taken = all<SendPartial>(machine_.receipt(1, {}, {}, at(3s)));
  ASSERT_THAT(taken, SizeIs(0));
  const auto sent = all<SendPartial>(take(3, of({3}, 6, 6)));
  ASSERT_THAT(sent, SizeIs(1));
  ASSERT_THAT(sent[0].refusals, SizeIs(1));
  EXPECT_EQ(sent[0].refusals[0].own, RoundId(5));
}

// A line that takes longer for a partial than the hard deadline would else begin it anew for ever.
TEST_F(RegionWindows, ANewAttemptLeavesThePartialOnItsWay) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  Opening again = window(5);
  again.attempt = AttemptId(2);
  EXPECT_THAT(all<SendPartial>(machine_.opened(again, at(2s))), SizeIs(0));
  EXPECT_THAT(all<ResetSum>(machine_.receipt(sent[0].sequence, {}, {}, at(3s))), SizeIs(1)) << "it is the same one";
  EXPECT_TRUE(machine_.admit(RoundId(5), AttemptId(1), Epoch(1), of({2}, 4, 4)).ok()) << "and so are those from below";
}

TEST_F(RegionWindows, WhatCameAtABadMomentIsSentAgainInTheNextAttempt) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  machine_.receipt(sent[0].sequence, Error{Code::kStale, "no round is open"}, {}, at(2s));
  Opening again = window(5);
  again.attempt = AttemptId(2);
  EXPECT_THAT(all<SendPartial>(machine_.opened(again, at(3s))), SizeIs(1));
}

// The receipt was lost with the session, and the window before has counted it.
TEST_F(RegionWindows, WhoWasDecidedInTheWindowBeforeIsAwaitedInThisOne) {
  take(1, of({1}, 4, 4));
  Opening next = window(6);
  next.same_session = false;
  const auto again = all<SendPartial>(machine_.opened(next, at(2s)));
  ASSERT_THAT(again, SizeIs(1));
  const Effects answered =
      machine_.receipt(again[0].sequence, Error{Code::kAlreadyExists, "decided"}, {SiteId(1)}, at(3s));
  EXPECT_THAT(all<OpenRound>(answered), SizeIs(1)) << "it is asked again";
  EXPECT_THAT(machine_.gather().awaited(), testing::Contains(SiteId(1)));
}

TEST_F(RegionWindows, AnUpdateThatCanNeverBeUsedIsReportedInTheNextToo) {
  machine_.opened(window(6), at(1s));
  take(1, of({1}, 5, 5));  // on its way, so that what follows waits
  machine_.refused({SiteId(2), {Code::kDataLoss, "not finite"}}, at(1s));
  machine_.refused({SiteId(3), {Code::kUnavailable, "not now"}}, at(1s));
  machine_.opened(window(7), at(2s));
  EXPECT_FALSE(machine_.admit(SiteId(2), Epoch(1), 10).ok()) << "it would send the same again";
  EXPECT_TRUE(machine_.admit(SiteId(3), Epoch(1), 10).ok());
  machine_.receipt(1, {}, {}, at(3s));
  const auto sent = all<SendPartial>(take(3, of({3}, 6, 6)));
  ASSERT_THAT(sent, SizeIs(1));
  ASSERT_THAT(sent[0].refusals, SizeIs(1));
  EXPECT_EQ(sent[0].refusals[0].site, SiteId(2));
  EXPECT_EQ(sent[0].refusals[0].own, RoundId(6));
}

TEST_F(RegionWindows, AMaximumWeightIsThatOfThePresentWindow) {
  EXPECT_TRUE(machine_.admit(SiteId(2), Epoch(1), 90).ok());
  Opening next = window(6);
  next.participants[1].weight_max = 50;
  machine_.opened(next, at(1s));
  EXPECT_FALSE(machine_.admit(SiteId(2), Epoch(1), 90).ok());
  EXPECT_TRUE(machine_.admit(SiteId(2), Epoch(1), 50).ok());
}

TEST_F(RegionWindows, ASumOfAnotherScaleIsNotTaken) {
  round::Arrival partial{of({2}, 4, 4), {}, {}};
  partial.scale_bits = 19;
  EXPECT_THAT(all<Drop>(machine_.arrived(ArrivalId(4), partial, at(1s))), SizeIs(1));
}

TEST_F(RegionWindows, AfterAReconnectItIsSentAgain) {
  const auto sent = all<SendPartial>(take(1, of({1}, 4, 4)));
  Opening next = window(6);
  next.same_session = false;
  const auto again = all<SendPartial>(machine_.opened(next, at(2s)));
  ASSERT_THAT(again, SizeIs(1));
  EXPECT_THAT(ids(again[0].contributors), ElementsAre(1));
}

}  // namespace
}  // namespace fluvial::aggregator
