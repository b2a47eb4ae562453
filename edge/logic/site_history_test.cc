// A site that connects to a coordinator whose folder was restored from a backup.
#include <gtest/gtest.h>

#include "edge/logic/site_machine.h"
#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

// Shared rounds after a restore of a copy with one run, and of a copy without any.
const round::Common kShared({}, {{round::HistoryId(7), Epoch(100), RunId(1), {{RunId(1), RoundId(1)}}}});
const round::Common kNoRun({}, {{round::HistoryId(7), Epoch(100), RunId(0), {}}});

SiteMachine training(std::uint64_t round) {
  SiteMachine site({});
  EXPECT_NE(find<FetchModel>(site.offered(offer(round))), nullptr);
  EXPECT_NE(find<Train>(site.model_ready(model(round - 1))), nullptr);
  return site;
}

TEST(SiteHistory, AnIdleSiteEntersAnotherHistoryAtOnce) {
  SiteMachine site = sending();
  EXPECT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  EXPECT_TRUE(site.history_entered({}, kShared).empty()) << "the store has made the submission late";
  EXPECT_FALSE(site.pending().has_value());
  EXPECT_EQ(find<Ask>(site.connected()), nullptr) << "nothing to ask for";
  EXPECT_NE(find<Train>(site.offered(offer(1))), nullptr) << "the same number, from the model that is here";
}

TEST(SiteHistory, ASubmissionOfASharedRoundIsAskedForInTheNewHistory) {
  SiteMachine site = sending();
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  site.history_entered(pending(1), kShared);
  ASSERT_NE(find<Ask>(site.connected()), nullptr);
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kCounted)), nullptr);
}

TEST(SiteHistory, WhatIsBeingWrittenEndsInTheHistoryBefore) {
  SiteMachine encoding = training(9);
  ASSERT_NE(find<Encode>(encoding.trained(kFirst)), nullptr);
  EXPECT_EQ(find<EnterHistory>(encoding.history_begins()), nullptr);
  EXPECT_NE(find<EnterHistory>(encoding.encoded(kFirst, pending(9))), nullptr);

  SiteMachine failing = training(9);
  ASSERT_NE(find<Encode>(failing.trained(kFirst)), nullptr);
  EXPECT_EQ(find<EnterHistory>(failing.history_begins()), nullptr);
  EXPECT_NE(find<EnterHistory>(failing.encode_failed(kFirst, {Code::kResourceExhausted, "full"})), nullptr);

  SiteMachine resolving = sending();
  ASSERT_NE(find<Resolve>(resolving.answered(pending(1), Outcome::kLate)), nullptr);
  EXPECT_EQ(find<EnterHistory>(resolving.history_begins()), nullptr);
  EXPECT_NE(find<EnterHistory>(resolving.resolved(pending(1))), nullptr);

  SiteMachine folding = training(9);
  folding.committed(RunId(1), RoundId(9), {}, model(9));
  ASSERT_NE(find<Fold>(folding.trained(kFirst)), nullptr);
  EXPECT_EQ(find<EnterHistory>(folding.history_begins()), nullptr);
  EXPECT_NE(find<EnterHistory>(folding.folded(kFirst)), nullptr);
}

TEST(SiteHistory, AnUpdateEncodedTooLateIsResolvedBeforeTheHistoryIsEntered) {
  SiteMachine site = training(9);
  ASSERT_NE(find<Encode>(site.trained(kFirst)), nullptr);
  site.committed(RunId(1), RoundId(9), {}, model(9));
  EXPECT_EQ(find<EnterHistory>(site.history_begins()), nullptr);
  const Effects encoded = site.encoded(kFirst, pending(9));
  EXPECT_NE(find<Resolve>(encoded), nullptr);
  EXPECT_EQ(find<EnterHistory>(encoded), nullptr);
  EXPECT_NE(find<EnterHistory>(site.resolved(pending(9))), nullptr);
}

TEST(SiteHistory, WhatIsTrainedInTheHistoryBeforeGoesIntoTheResidual) {
  SiteMachine site = training(2);
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  EXPECT_TRUE(site.history_entered({}, kShared).empty());
  // The new history's round of the same number waits, because it is another round.
  Offer other = offer(2);
  other.base.digest[5] = std::byte{1};
  EXPECT_TRUE(site.offered(other).empty());
  const Effects trained = site.trained(kFirst);
  ASSERT_NE(find<Fold>(trained), nullptr);
  EXPECT_TRUE(find<Fold>(trained)->lost);
  const Effects next = site.folded(kFirst);
  ASSERT_NE(find<FetchModel>(next), nullptr);
  EXPECT_EQ(find<FetchModel>(next)->model, other.base) << "models are known by their digests";
  EXPECT_NE(find<Train>(site.model_ready(other.base)), nullptr);
}

// Base and plan may be the same as well, if both histories committed the same. A training still belongs to the history
// for which it was begun.
TEST(SiteHistory, WhatIsTrainedInTheHistoryBeforeIsNotSentAsTheSameRoundOfTheNext) {
  SiteMachine site = training(2);
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  EXPECT_TRUE(site.history_entered({}, kShared).empty());
  EXPECT_TRUE(site.offered(offer(2)).empty());
  const Effects trained = site.trained(kFirst);
  EXPECT_EQ(find<Encode>(trained), nullptr);
  ASSERT_NE(find<Fold>(trained), nullptr);
  EXPECT_TRUE(find<Fold>(trained)->lost);
  EXPECT_NE(find<Train>(site.folded(kFirst)), nullptr) << "the round is trained for again, from the model that is here";
}

TEST(SiteHistory, TrainedWhileTheHistoryIsEnteredWaitsForIt) {
  SiteMachine site = training(9);
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  EXPECT_TRUE(site.trained(kFirst).empty());
  const Effects entered = site.history_entered({}, kShared);
  ASSERT_NE(find<Fold>(entered), nullptr);
  EXPECT_TRUE(find<Fold>(entered)->lost);
}

TEST(SiteHistory, OfARunThatIsLostNothingIsAskedAndNothingKept) {
  SiteMachine site = training(9);
  EXPECT_NE(find<AskRun>(site.connected()), nullptr);
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  site.history_entered({}, kNoRun);
  EXPECT_EQ(find<AskRun>(site.connected()), nullptr) << "the coordinator does not know that run";
  EXPECT_EQ(find<AskRun>(site.ask_again()), nullptr);
  const Effects trained = site.trained(kFirst);
  ASSERT_NE(find<Fold>(trained), nullptr);
  EXPECT_TRUE(find<Fold>(trained)->run_lost);

  SiteMachine other = training(9);
  ASSERT_NE(find<EnterHistory>(other.history_begins()), nullptr);
  other.history_entered({}, kShared);
  EXPECT_NE(find<AskRun>(other.connected()), nullptr) << "it may have ended meanwhile";
  const Effects kept = other.trained(kFirst);
  ASSERT_NE(find<Fold>(kept), nullptr);
  EXPECT_FALSE(find<Fold>(kept)->run_lost);
}

TEST(SiteHistory, RoundsThatClosedInTheHistoryBeforeAreOpenedAgain) {
  SiteMachine site({});
  site.committed(RunId(1), RoundId(9), {}, model(9));
  EXPECT_TRUE(site.offered(offer(5)).empty());
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  site.history_entered({}, kShared);
  EXPECT_NE(find<FetchModel>(site.offered(offer(5))), nullptr);
  const Effects committed = site.committed(RunId(1), RoundId(5), {}, model(5));
  EXPECT_NE(find<FetchModel>(committed), nullptr) << "its version is lower than that of the model asked for before";
}

TEST(SiteHistory, ARunThatWasOverMayGoOnInTheNext) {
  SiteMachine site = training(9);
  site.run_over(RunId(1));
  ASSERT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  site.history_entered({}, kShared);
  EXPECT_FALSE(site.is_over(RunId(1)));
  ASSERT_NE(find<Fold>(site.trained(kFirst)), nullptr);
  EXPECT_EQ(find<CompleteRun>(site.folded(kFirst)), nullptr) << "it is not complete";
}

}  // namespace
}  // namespace fluvial::edge
