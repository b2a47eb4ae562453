#include "edge/logic/site_machine.h"

#include <gtest/gtest.h>

#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

TEST(SiteMachine, ResolvesByWhatTheCommitSays) {
  struct Case {
    std::optional<Digest> counted;
    bool refused;
    Outcome expected;
  };
  for (const Case& c : {Case{pending(1).digest, false, Outcome::kCounted}, Case{std::nullopt, false, Outcome::kLate},
                        Case{pending(2).digest, false, Outcome::kLate}, Case{std::nullopt, true, Outcome::kRefused}}) {
    SiteMachine site = sending();
    const Effects effects =
        site.committed(RunId(1), RoundId(1), Verdict{c.counted, c.refused, !c.counted && !c.refused}, model(1));
    ASSERT_NE(find<Resolve>(effects), nullptr);
    EXPECT_EQ(find<Resolve>(effects)->outcome, c.expected);
    EXPECT_NE(find<FetchModel>(effects), nullptr) << "the next base, early";
    EXPECT_NE(find<StopSending>(effects), nullptr);
  }
}

TEST(SiteMachine, ACommitThatDoesNotNameItIsNoOutcome) {
  SiteMachine site = sending();
  const Effects effects = site.committed(RunId(1), RoundId(1), Verdict{}, model(1));
  EXPECT_EQ(find<Resolve>(effects), nullptr) << "it may be counted: the commit came by a way that does not know it";
  ASSERT_NE(find<Ask>(effects), nullptr);
  EXPECT_EQ(find<Ask>(effects)->pending.round, RoundId(1));
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kCounted)), nullptr);
}

TEST(SiteMachine, AsksAgainAsLongAsThereIsNoOutcome) {
  SiteMachine site = sending();
  EXPECT_NE(find<Ask>(site.ask_again()), nullptr) << "the commit may have been lost above a parent that stayed";
  site.answered(pending(1), Outcome::kPending);
  EXPECT_NE(find<Ask>(site.ask_again()), nullptr);
  site.answered(pending(1), Outcome::kLate);
  EXPECT_TRUE(site.ask_again().empty());
}

TEST(SiteMachine, ACommitOfALaterRoundMakesItAskForTheOneItMissed) {
  SiteMachine site = sending();
  const Effects effects = site.committed(RunId(1), RoundId(2), Verdict{.late = true}, model(2));
  EXPECT_EQ(find<Resolve>(effects), nullptr);
  ASSERT_NE(find<Ask>(effects), nullptr);
  EXPECT_EQ(find<Ask>(effects)->pending.round, RoundId(1));
}

TEST(SiteMachine, TheNextRoundWaitsForTheOutcomeToBeDurable) {
  SiteMachine site = sending();
  site.committed(RunId(1), RoundId(1), Verdict{pending(1).digest}, model(1));
  EXPECT_TRUE(site.offered(offer(2)).empty());
  EXPECT_TRUE(site.model_ready(model(1)).empty());
  const Effects started = site.resolved();
  ASSERT_NE(find<Train>(started), nullptr);
  EXPECT_EQ(find<Train>(started)->offer.round, RoundId(2));
}

TEST(SiteMachine, SendsAgainWhatTheParentDoesNotHold) {
  SiteMachine site = sending();
  EXPECT_NE(find<Send>(site.offered(offer(1))), nullptr);
  EXPECT_EQ(find<Send>(site.offered(offer(1, /*counted=*/true))), nullptr);
}

TEST(SiteMachine, AMissedCommitIsAskedForAndNothingNewerIsEncodedBefore) {
  SiteMachine site(pending(3));  // as found on disk
  EXPECT_NE(find<Ask>(site.connected()), nullptr);
  const Effects offered = site.offered(offer(7));
  EXPECT_NE(find<Ask>(offered), nullptr);
  EXPECT_EQ(find<FetchModel>(offered), nullptr);
  EXPECT_TRUE(site.answered(pending(3), Outcome::kPending).empty());
  EXPECT_TRUE(site.answered(pending(4), Outcome::kCounted).empty()) << "about something else";
  const Effects answered = site.answered(pending(3), Outcome::kCounted);
  ASSERT_NE(find<Resolve>(answered), nullptr);
  EXPECT_EQ(find<Resolve>(answered)->outcome, Outcome::kCounted);
  EXPECT_NE(find<FetchModel>(site.resolved()), nullptr);
}

TEST(SiteMachine, AStragglersUpdateIsFoldedAndItGoesOnWithTheNewestRound) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_TRUE(site.offered(offer(2)).empty());
  site.committed(RunId(1), RoundId(2), Verdict{.late = true}, model(2));
  EXPECT_TRUE(site.offered(offer(3)).empty());
  site.model_ready(model(2));
  EXPECT_NE(find<Fold>(site.trained()), nullptr);
  const Effects next = site.resolved();
  ASSERT_NE(find<Train>(next), nullptr);
  EXPECT_EQ(find<Train>(next)->offer.round, RoundId(3));
}

TEST(SiteMachine, ARoundThatClosesWhileEncodingIsLate) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.trained();
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  const Effects effects = site.encoded(pending(1));
  EXPECT_EQ(find<Send>(effects), nullptr);
  ASSERT_NE(find<Resolve>(effects), nullptr);
  EXPECT_EQ(find<Resolve>(effects)->outcome, Outcome::kLate);
}

TEST(SiteMachine, AnOpeningAsksAgainForAModelThatDoesNotCome) {
  SiteMachine site({});
  EXPECT_NE(find<FetchModel>(site.offered(offer(1))), nullptr);
  EXPECT_NE(find<FetchModel>(site.offered(offer(1))), nullptr) << "its new parent may not have had it when it asked";
  EXPECT_NE(find<Train>(site.model_ready(model(0))), nullptr);
  EXPECT_EQ(find<FetchModel>(site.offered(offer(1))), nullptr);
}

TEST(SiteMachine, ARoundThatClosesBeforeTrainingIsLeftAlone) {
  SiteMachine site({});
  site.offered(offer(1));
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_NE(find<FetchModel>(site.offered(offer(2))), nullptr);
  EXPECT_TRUE(site.offered(offer(1)).empty()) << "an offer that its commit overtook";
}

TEST(SiteMachine, DeclinesWhenItsWorkersCannot) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  EXPECT_NE(find<DeclineRound>(site.train_failed({Code::kInternal, "out of memory"})), nullptr);
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_NE(find<FetchModel>(site.offered(offer(2))), nullptr);
}

TEST(SiteMachine, GoesOnWhereTheParentStoppedReceivingThisSubmission) {
  struct Case {
    Received received;
    std::uint64_t expected;
  };
  Pending ours = pending(1);
  ours.incarnation = Incarnation(4);
  ours.submission = 9;
  for (const Case& c : {Case{{Incarnation(4), 9, 3}, 3}, Case{{Incarnation(3), 9, 3}, 0},
                        Case{{Incarnation(4), 8, 3}, 0}, Case{{}, 0}}) {
    SiteMachine site(ours);
    Offer again = offer(1);
    again.received = c.received;
    const Effects effects = site.offered(again);
    ASSERT_NE(find<Send>(effects), nullptr);
    EXPECT_EQ(find<Send>(effects)->first_chunk, c.expected);
    EXPECT_EQ(find<Send>(site.offered(offer(1)))->first_chunk, 0u) << "another parent has nothing of it";
  }
}

TEST(SiteMachine, ALeaseThatChangesWhileItSendsIsSentUnder) {
  SiteMachine site = sending();
  Offer moved = offer(1);
  moved.lease = Epoch(12);
  const Effects effects = site.offered(moved);
  ASSERT_NE(find<Send>(effects), nullptr);
  EXPECT_EQ(find<Send>(effects)->offer.lease, Epoch(12));
}

TEST(SiteMachine, AnOutcomeThatNobodyAnsweredIsAskedForAtEachOccasion) {
  SiteMachine site(pending(1));
  EXPECT_NE(find<Ask>(site.connected()), nullptr);
  EXPECT_NE(find<Ask>(site.offered(offer(3))), nullptr) << "no answer so far: the next opening asks";
  EXPECT_NE(find<Ask>(site.committed(RunId(1), RoundId(3), Verdict{}, model(3))), nullptr) << "and the next commit";
  EXPECT_NE(find<Ask>(site.offered(offer(4))), nullptr);
  EXPECT_NE(find<Ask>(site.connected()), nullptr) << "and the next session";
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kLate)), nullptr);
  EXPECT_EQ(find<Ask>(site.connected()), nullptr) << "being resolved";
  EXPECT_NE(find<FetchModel>(site.resolved()), nullptr) << "the newest offer is taken up";
}

TEST(SiteMachine, TheCommitThatNamesItMayComeAfterOneThatDoesNot) {
  SiteMachine site = sending();
  EXPECT_EQ(find<Resolve>(site.committed(RunId(1), RoundId(1), Verdict{}, model(1))), nullptr);
  const Effects named = site.committed(RunId(1), RoundId(1), Verdict{pending(1).digest}, model(1));
  ASSERT_NE(find<Resolve>(named), nullptr);
  EXPECT_EQ(find<Resolve>(named)->outcome, Outcome::kCounted);
  EXPECT_EQ(find<Resolve>(site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1))), nullptr)
      << "a repetition";
}

TEST(SiteMachine, ACommitBehindTheAnswerStillBringsItsModel) {
  SiteMachine site(pending(1));
  site.connected();
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kCounted)), nullptr);
  EXPECT_NE(find<FetchModel>(site.committed(RunId(1), RoundId(1), Verdict{pending(1).digest}, model(1))), nullptr);
  site.resolved();
  site.offered(offer(3));
  EXPECT_EQ(find<FetchModel>(site.committed(RunId(1), RoundId(1), Verdict{}, model(1))), nullptr) << "an older one";
}

TEST(SiteMachine, ARoundOfThePastTakesNothingFromTheOneAtWork) {
  SiteMachine site({});
  site.offered(offer(5));
  site.model_ready(model(4));
  EXPECT_TRUE(site.offered(offer(4)).empty()) << "from a parent that has not heard of its commit";
  EXPECT_NE(find<Encode>(site.trained()), nullptr) << "still in time";
  site.encoded(pending(5));
  site.answered(pending(5), Outcome::kLate);
  site.resolved();
  EXPECT_TRUE(site.offered(offer(5)).empty()) << "its outcome is final";
}

TEST(SiteMachine, ARunThatComesBackFindsItsWorkInTime) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  Offer other = offer(1);
  other.run = RunId(2);
  site.offered(other);
  site.offered(offer(1));
  EXPECT_NE(find<Encode>(site.trained()), nullptr);
}

// Declining is for an attempt: asked again, it tries again.
TEST(SiteMachine, TriesAgainInTheNextAttempt) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  EXPECT_NE(find<DeclineRound>(site.train_failed({Code::kInternal, "out of memory"})), nullptr);
  EXPECT_NE(find<Train>(site.offered(offer(1))), nullptr);
  EXPECT_NE(find<Encode>(site.trained()), nullptr);
}

// A parent does not do that, unless it lies or has lost what it knew of the round.
TEST(SiteMachine, WhatIsMadeForARoundFitsIntoNoOtherOfThatName) {
  Offer rebased = offer(1);
  rebased.base = model(4);
  Offer replanned = offer(1);
  replanned.plan.chunk_values = 512;
  for (const Offer& other : {rebased, replanned}) {
    SiteMachine training({});
    training.offered(offer(1));
    training.model_ready(model(0));
    SiteMachine encoding = training;
    EXPECT_TRUE(training.offered(other).empty()) << "when it has trained";
    const Effects trained = training.trained();
    ASSERT_NE(find<Fold>(trained), nullptr);
    EXPECT_EQ(find<Fold>(trained)->offer.base, model(0));
    EXPECT_EQ(find<Fold>(trained)->offer.plan, offer(1).plan);
    const Effects next = training.resolved();
    EXPECT_TRUE(find<Train>(next) != nullptr || find<FetchModel>(next) != nullptr) << "then for the other";

    encoding.trained();
    EXPECT_TRUE(encoding.offered(other).empty());
    const Effects late = encoding.encoded(pending(1));
    ASSERT_NE(find<Resolve>(late), nullptr);
    EXPECT_EQ(find<Resolve>(late)->outcome, Outcome::kLate);
  }
}

TEST(SiteMachine, ClaimsWhatTheRoundHasOnRecord) {
  Offer told = offer(1);
  EXPECT_EQ(weight_to_claim(told, 500), 500u) << "nothing was told";
  told.weight_max = 100;
  EXPECT_EQ(weight_to_claim(told, 500), 100u);
  EXPECT_EQ(weight_to_claim(told, 100), 100u);
  EXPECT_EQ(weight_to_claim(told, 20), 20u);
}

TEST(SiteMachine, ADeclineIsOfTheAttemptThatItWasOfferedLast) {
  Offer again = offer(1);
  again.attempt = AttemptId(2);
  SiteMachine training({});
  training.offered(offer(1));
  training.model_ready(model(0));
  training.offered(again);
  SiteMachine encoding = training;
  encoding.trained();
  const Error error{Code::kInternal, "out of memory"};
  for (const Effects& declined : {training.train_failed(error), encoding.encode_failed(error)}) {
    ASSERT_NE(find<DeclineRound>(declined), nullptr);
    EXPECT_EQ(find<DeclineRound>(declined)->attempt, AttemptId(2));
  }
}

TEST(SiteMachine, OnANewSessionItAsksWhetherItsRunsGoOnUntilItHearsOfThem) {
  SiteMachine site({}, {RunId(7)});
  const Effects asked = site.connected();
  ASSERT_NE(find<AskRun>(asked), nullptr) << "of which its store holds something";
  EXPECT_EQ(find<AskRun>(asked)->run, RunId(7));
  EXPECT_NE(find<AskRun>(site.ask_again()), nullptr) << "question or answer may be lost";
  site.run_goes_on(RunId(7));
  EXPECT_EQ(find<AskRun>(site.ask_again()), nullptr);
  site.run_over(RunId(7));
  EXPECT_TRUE(site.connected().empty());
  site.offered(offer(1));
  EXPECT_EQ(find<AskRun>(site.ask_again()), nullptr);
  EXPECT_NE(find<AskRun>(site.connected()), nullptr) << "what happened meanwhile nobody tells it";
  site.offered(offer(1));
  EXPECT_EQ(find<AskRun>(site.ask_again()), nullptr);
  site.connected();
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_EQ(find<AskRun>(site.ask_again()), nullptr);
}

TEST(SiteMachine, WhatIsBeingMadeForARunThatIsOverGoesIntoTheResidual) {
  SiteMachine training({});
  training.offered(offer(1));
  training.model_ready(model(0));
  EXPECT_TRUE(training.run_over(RunId(1)).empty());
  EXPECT_NE(find<Fold>(training.trained()), nullptr);

  SiteMachine encoding({});
  encoding.offered(offer(1));
  encoding.model_ready(model(0));
  encoding.trained();
  encoding.run_over(RunId(1));
  const Effects late = encoding.encoded(pending(1));
  ASSERT_NE(find<Resolve>(late), nullptr);
  EXPECT_EQ(find<Resolve>(late)->outcome, Outcome::kLate);

  SiteMachine submitted = sending();
  EXPECT_NE(find<Ask>(submitted.run_over(RunId(1))), nullptr) << "the end says nothing of the update";
  EXPECT_EQ(find<Ask>(submitted.run_over(RunId(2))), nullptr);

  SiteMachine fetching({});
  fetching.offered(offer(1));
  fetching.run_over(RunId(1));
  EXPECT_EQ(fetching.doing(), "waiting");
}

TEST(SiteMachine, OnlyARefusalOfTheUpdateItselfDropsIt) {
  const auto verdict = [](std::uint32_t site, Code code) {
    return verdict_of(SiteId(1), {}, {{SiteId(site), {code, "why"}}}, {});
  };
  EXPECT_TRUE(verdict(1, Code::kDataLoss).refused);
  EXPECT_FALSE(verdict(1, Code::kDataLoss).late);
  EXPECT_FALSE(verdict(1, Code::kStale).refused) << "the site did not take part";
  EXPECT_TRUE(verdict(1, Code::kStale).late);
  EXPECT_FALSE(verdict(2, Code::kDataLoss).refused) << "another's";
  EXPECT_FALSE(verdict(2, Code::kDataLoss).late);
}

TEST(SiteMachine, AnAnswerAboutOtherBytesResolvesNothing) {
  SiteMachine site = sending();
  Pending before = pending(1);  // of an incarnation whose disk was lost
  before.digest[2] = std::byte{9};
  EXPECT_TRUE(site.answered(before, Outcome::kCounted).empty());
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kLate)), nullptr);
}

// ---- another history ----------------------------------------------------------------------------------------------

}  // namespace
}  // namespace fluvial::edge
