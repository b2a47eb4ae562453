// Late is next, at a site (docs/design/late.md): which rounds an update enters, and when it is late in the end.
#include <gtest/gtest.h>

#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

constexpr RunId kLateRun{1};

Offer late_offer(std::uint64_t round, bool counted = false, std::uint32_t staleness_max = 1) {
  Offer made = offer(round, counted);
  made.late = round::Lateness{staleness_max, round::staleness_factors(staleness_max, 0.5), {}};
  return made;
}

// In training for round 1.
SiteMachine training() {
  SiteMachine site({});
  site.offered(late_offer(1));
  EXPECT_NE(find<Train>(site.model_ready(model(0))), nullptr);
  return site;
}
// With a submission for round 1 on its way.
SiteMachine sent() {
  SiteMachine site = training();
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
  EXPECT_NE(find<Send>(site.encoded(kFirst, pending(1))), nullptr);
  return site;
}

TEST(LateIsNext, AsksAndSendsItIntoTheNextRound) {
  SiteMachine site = sent();
  const Effects committed = site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  EXPECT_EQ(find<Resolve>(committed), nullptr) << "it is pending, not late";
  EXPECT_NE(find<Ask>(committed), nullptr);
  const Effects opened = site.offered(late_offer(2));
  EXPECT_EQ(find<Send>(opened), nullptr) << "a commit that named it may have been lost";
  EXPECT_NE(find<Ask>(opened), nullptr);
  const Effects told = site.answered(pending(1), Outcome::kPending);
  ASSERT_NE(find<Send>(told), nullptr);
  EXPECT_EQ(find<Send>(told)->offer.round, RoundId(2));
  const Effects counted = site.committed(kLateRun, RoundId(2), Verdict{pending(1).digest}, model(2));
  ASSERT_NE(find<Resolve>(counted), nullptr);
  EXPECT_EQ(find<Resolve>(counted)->outcome, Outcome::kCounted);
  EXPECT_EQ(find<Resolve>(counted)->pending, pending(1));
  site.resolved(pending(1));
  EXPECT_NE(find<FetchModel>(site.offered(late_offer(3))), nullptr) << "and then begins anew";
}

TEST(LateIsNext, IsSentOnceForEachOpening) {
  SiteMachine site = sent();
  site.offered(late_offer(2));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  EXPECT_EQ(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr) << "it was, and the round is open";
  site.offered(late_offer(2));  // again: the parent does not have it
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
}

// Its upload was on its way when the round opened, and was let go on.
TEST(LateIsNext, WhatTheParentHasTakenMeanwhileIsNotSentAgain) {
  SiteMachine site = sent();
  site.offered(late_offer(2));
  site.taken(kLateRun);
  EXPECT_EQ(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  site.offered(late_offer(2));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr) << "it has it no more";
}

TEST(LateIsNext, WhatTheParentTookForNoRoundIsSentIntoTheOpenOne) {
  SiteMachine site = sent();
  site.offered(late_offer(2));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  EXPECT_NE(find<Ask>(site.not_taken(kLateRun, RoundId(1))), nullptr);
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  EXPECT_TRUE(site.not_taken(kLateRun, RoundId(2)).empty()) << "of the open one an opening follows";
}

TEST(LateIsNext, AnAnswerThatItCountedAfterAllIsBelieved) {
  SiteMachine site = sent();
  site.offered(late_offer(2));
  const Effects told = site.answered(pending(1), Outcome::kCounted);
  EXPECT_EQ(find<Send>(told), nullptr);
  EXPECT_EQ(find<Resolve>(told)->outcome, Outcome::kCounted);
  site.resolved(pending(1));
  EXPECT_NE(find<Train>(site.model_ready(model(1))), nullptr) << "the open round gets a new update";
}

// Round 2 refused it, and that commit is on its way or lost.
TEST(LateIsNext, TheRoundThatDecidedItIsOver) {
  SiteMachine site = sent();
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  site.offered(late_offer(2));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  const Effects told = site.answered(pending(1), Outcome::kRefused);
  EXPECT_NE(find<Resolve>(told), nullptr);
  ASSERT_NE(find<DeclineRound>(told), nullptr) << "should it be open after all, it need not wait";
  EXPECT_EQ(find<DeclineRound>(told)->round, RoundId(2));
  const Effects resolved = site.resolved(pending(1));
  EXPECT_EQ(find<Train>(resolved), nullptr) << "for a round that is closed";
  EXPECT_EQ(find<FetchModel>(resolved), nullptr);
  site.committed(kLateRun, RoundId(2), Verdict{.refused = true, .refused_own = RoundId(1)}, model(2));
  EXPECT_NE(find<FetchModel>(site.offered(late_offer(3))), nullptr);
}

// It was encoded when its own round was decided, by another update of this site.
TEST(LateIsNext, WhoIsTurnedAwayAsksAndLetsTheRoundGoOn) {
  SiteMachine site = training();
  site.offered(late_offer(2));
  site.trained(kFirst);
  EXPECT_EQ(find<Send>(site.encoded(kFirst, pending(1)))->offer.round, RoundId(2));
  EXPECT_TRUE(site.turned_away(kLateRun, RoundId(3)).empty()) << "of another round";
  EXPECT_NE(find<Ask>(site.turned_away(kLateRun, RoundId(2))), nullptr);
  const Effects told = site.answered(pending(1), Outcome::kLate);
  EXPECT_NE(find<Resolve>(told), nullptr);
  ASSERT_NE(find<DeclineRound>(told), nullptr);
  EXPECT_EQ(find<DeclineRound>(told)->round, RoundId(2));
  SiteMachine over = sent();
  over.offered(late_offer(2));
  over.answered(pending(1), Outcome::kPending);
  over.committed(kLateRun, RoundId(2), Verdict{}, model(2));
  EXPECT_EQ(find<DeclineRound>(over.answered(pending(1), Outcome::kCounted)), nullptr) << "that round is over";
  EXPECT_TRUE(sent().turned_away(kLateRun, RoundId(1)).empty()) << "its own round has it: nothing to ask";
}

TEST(LateIsNext, ARefusalOfAnEarlierUpdateIsNotOfThisOne) {
  SiteMachine site({});
  site.offered(late_offer(2));
  site.model_ready(model(1));
  site.trained(kFirst);
  site.encoded(kFirst, pending(2));
  const Effects told =
      site.committed(kLateRun, RoundId(2), Verdict{.refused = true, .refused_own = RoundId(1)}, model(2));
  EXPECT_EQ(find<Resolve>(told), nullptr);
  EXPECT_NE(find<Ask>(told), nullptr);
}

// A parent that withheld the commit which counted it may say in a later round that it is refused.
TEST(LateIsNext, ARefusalInALaterRoundIsAskedAbout) {
  SiteMachine site = sent();
  site.offered(late_offer(2));
  site.answered(pending(1), Outcome::kPending);
  const Effects told =
      site.committed(kLateRun, RoundId(2), Verdict{.refused = true, .refused_own = RoundId(1)}, model(2));
  EXPECT_EQ(find<Resolve>(told), nullptr);
  EXPECT_NE(find<Ask>(told), nullptr);
}

TEST(LateIsNext, TrainingGoesOnAndEntersTheNextRound) {
  SiteMachine site = training();
  EXPECT_TRUE(find<Fold>(site.committed(kLateRun, RoundId(1), Verdict{}, model(1))) == nullptr);
  site.model_ready(model(1));
  EXPECT_TRUE(site.offered(late_offer(2)).empty()) << "it trains already";
  const Effects trained = site.trained(kFirst);
  ASSERT_NE(find<Encode>(trained), nullptr);
  EXPECT_EQ(find<Encode>(trained)->offer.round, RoundId(1)) << "by the base and the plan of its own round";
  ASSERT_NE(site.to_be_sent(kFirst), nullptr);
  EXPECT_EQ(site.to_be_sent(kFirst)->round, RoundId(2));
  const Effects encoded = site.encoded(kFirst, pending(1));
  ASSERT_NE(find<Send>(encoded), nullptr);
  EXPECT_EQ(find<Send>(encoded)->offer.round, RoundId(2)) << "just made, it cannot have counted";
}

TEST(LateIsNext, BetweenRoundsItWaits) {
  SiteMachine site = training();
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
  EXPECT_EQ(site.to_be_sent(kFirst), nullptr) << "no round is open that could take it";
  EXPECT_EQ(find<Send>(site.encoded(kFirst, pending(1))), nullptr);
  site.offered(late_offer(2));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
}

TEST(LateIsNext, TooLateForEveryRoundIsLate) {
  SiteMachine site = training();
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  site.offered(late_offer(2));
  site.committed(kLateRun, RoundId(2), Verdict{}, model(2));
  EXPECT_NE(find<Fold>(site.trained(kFirst)), nullptr) << "round 2 was the last that it could enter";
}

TEST(LateIsNext, AsManyRoundsLaterAsThePlanSays) {
  SiteMachine site({});
  site.offered(late_offer(1, false, 2));
  site.model_ready(model(0));
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  site.committed(kLateRun, RoundId(2), Verdict{}, model(2));
  site.offered(late_offer(3, false, 2));
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
  EXPECT_EQ(find<Send>(site.encoded(kFirst, pending(1)))->offer.round, RoundId(3));
  site.committed(kLateRun, RoundId(3), Verdict{}, model(3));
  const Effects opened = site.offered(late_offer(4, false, 2));
  EXPECT_NE(find<Ask>(opened), nullptr);
  EXPECT_EQ(find<Resolve>(site.answered(pending(1), Outcome::kLate))->outcome, Outcome::kLate);
}

// An earlier incarnation's, whose disk was lost. Its own may still enter: that it is late is the coordinator's to say.
TEST(LateIsNext, WhereOtherBytesOfItsCountedItAsks) {
  const Verdict others{Digest{std::byte{9}}};
  SiteMachine site = sent();
  const Effects committed = site.committed(kLateRun, RoundId(1), others, model(1));
  EXPECT_EQ(find<Resolve>(committed), nullptr);
  EXPECT_NE(find<Ask>(committed), nullptr);
  SiteMachine again(pending(1));  // it has not heard whether old updates may enter
  EXPECT_NE(find<Ask>(again.committed(kLateRun, RoundId(1), others, model(1))), nullptr);
  SiteMachine alone(pending(1));
  alone.offered(offer(1));
  const Effects known = alone.committed(kLateRun, RoundId(1), others, model(1));
  ASSERT_NE(find<Resolve>(known), nullptr) << "its round was the only one";
  EXPECT_EQ(find<Resolve>(known)->outcome, Outcome::kLate);
}

TEST(LateIsNext, WhatTrainedNothingYetBeginsAnew) {
  SiteMachine site({});
  EXPECT_NE(find<FetchModel>(site.offered(late_offer(1))), nullptr);
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  site.offered(late_offer(2));
  EXPECT_EQ(find<Train>(site.model_ready(model(1)))->offer.round, RoundId(2));
}

TEST(LateIsNext, AParentThatTakesNoneIsToldSo) {
  SiteMachine site = sent();
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  site.offered(offer(2));  // of a version before: it does not pass the rule on
  const Effects first = site.answered(pending(1), Outcome::kPending);
  EXPECT_EQ(find<DeclineRound>(first), nullptr) << "perhaps of before the opening";
  EXPECT_NE(find<Ask>(first), nullptr) << "nobody waits until it asks by itself";
  const Effects told = site.answered(pending(1), Outcome::kPending);
  EXPECT_EQ(find<Send>(told), nullptr);
  ASSERT_NE(find<DeclineRound>(told), nullptr) << "the round need not wait for this site";
  EXPECT_EQ(find<DeclineRound>(told)->round, RoundId(2));
  EXPECT_TRUE(site.pending().has_value());
}

TEST(LateIsNext, WhereItIsCountedAlreadyNothingIsSent) {
  SiteMachine site = sent();
  site.offered(late_offer(2, /*counted=*/true));
  EXPECT_TRUE(site.answered(pending(1), Outcome::kPending).empty());
  SiteMachine other = training();
  other.offered(late_offer(2, /*counted=*/true));
  other.trained(kFirst);
  EXPECT_EQ(find<Send>(other.encoded(kFirst, pending(1))), nullptr);
}

TEST(LateIsNext, TheEndOfTheRunEndsIt) {
  SiteMachine site = training();
  site.committed(kLateRun, RoundId(1), Verdict{}, model(1));
  site.run_over(kLateRun);
  EXPECT_NE(find<Fold>(site.trained(kFirst)), nullptr);
  SiteMachine waiting = sent();
  const Effects last = waiting.committed(kLateRun, RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_EQ(find<Resolve>(last)->outcome, Outcome::kLate) << "said by the coordinator: no round follows";
}

TEST(LateIsNext, DecliningIsAboutTheRoundThatWaits) {
  SiteMachine site = training();
  site.offered(late_offer(2));
  const Effects failed = site.train_failed(kFirst, {Code::kInternal, "no"});
  ASSERT_NE(find<DeclineRound>(failed), nullptr);
  EXPECT_EQ(find<DeclineRound>(failed)->round, RoundId(2));
}

}  // namespace
}  // namespace fluvial::edge
