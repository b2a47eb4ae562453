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
  const Effects started = site.resolved(pending(1));
  ASSERT_NE(find<Train>(started), nullptr);
  EXPECT_EQ(find<Train>(started)->offer.round, RoundId(2));
}

TEST(SiteMachine, SaysWhoWaitsForWhatIsBeingEncoded) {
  const auto encoding = [] {
    SiteMachine site({});
    site.offered(offer(1));
    site.model_ready(model(0));
    EXPECT_EQ(site.to_be_sent(kFirst), nullptr) << "it is being trained";
    EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
    return site;
  };
  SiteMachine site = encoding();
  ASSERT_NE(site.to_be_sent(kFirst), nullptr);
  EXPECT_EQ(site.to_be_sent(kFirst)->round, RoundId(1));
  EXPECT_EQ(site.to_be_sent(WorkId(2)), nullptr);
  site.encoded(kFirst, pending(1));
  EXPECT_EQ(site.to_be_sent(kFirst), nullptr) << "it is sent as a submission";
  SiteMachine late = encoding();
  late.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_EQ(late.to_be_sent(kFirst), nullptr);
  SiteMachine over = encoding();
  over.run_over(RunId(1));
  EXPECT_EQ(over.to_be_sent(kFirst), nullptr);
  SiteMachine lost = encoding();
  lost.history_begins();
  EXPECT_EQ(lost.to_be_sent(kFirst), nullptr);
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
  const Effects early = site.answered(pending(3), Outcome::kPending);
  EXPECT_EQ(early.size(), 1U);
  EXPECT_NE(find<Ask>(early), nullptr) << "that answer may be older than the opening";
  EXPECT_TRUE(site.answered(pending(4), Outcome::kCounted).empty()) << "about something else";
  const Effects answered = site.answered(pending(3), Outcome::kCounted);
  ASSERT_NE(find<Resolve>(answered), nullptr);
  EXPECT_EQ(find<Resolve>(answered)->outcome, Outcome::kCounted);
  EXPECT_NE(find<FetchModel>(site.resolved(pending(3))), nullptr);
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
  EXPECT_NE(find<Fold>(site.trained(kFirst)), nullptr);
  const Effects next = site.folded(kFirst);
  ASSERT_NE(find<Train>(next), nullptr);
  EXPECT_EQ(find<Train>(next)->offer.round, RoundId(3));
}

TEST(SiteMachine, ARoundThatClosesWhileEncodingIsLate) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.trained(kFirst);
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  const Effects effects = site.encoded(kFirst, pending(1));
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
  EXPECT_NE(find<DeclineRound>(site.train_failed(kFirst, {Code::kInternal, "out of memory"})), nullptr);
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_NE(find<FetchModel>(site.offered(offer(2))), nullptr);
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
  EXPECT_NE(find<FetchModel>(site.resolved(pending(1))), nullptr) << "the newest offer is taken up";
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
  site.resolved(pending(1));
  site.offered(offer(3));
  EXPECT_EQ(find<FetchModel>(site.committed(RunId(1), RoundId(1), Verdict{}, model(1))), nullptr) << "an older one";
}

TEST(SiteMachine, ARoundOfThePastTakesNothingFromTheOneAtWork) {
  SiteMachine site({});
  site.offered(offer(5));
  site.model_ready(model(4));
  EXPECT_TRUE(site.offered(offer(4)).empty()) << "from a parent that has not heard of its commit";
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr) << "still in time";
  site.encoded(kFirst, pending(5));
  site.answered(pending(5), Outcome::kLate);
  site.resolved(pending(5));
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
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
}

// A decline is for one attempt: when the site is asked again, it tries again.
TEST(SiteMachine, TriesAgainInTheNextAttempt) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  EXPECT_NE(find<DeclineRound>(site.train_failed(kFirst, {Code::kInternal, "out of memory"})), nullptr);
  EXPECT_NE(find<Train>(site.offered(offer(1))), nullptr);
  EXPECT_NE(find<Encode>(site.trained(WorkId(2))), nullptr);
}

// A parent does this only if it lies or has lost what it knew of the round.
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
    const Effects trained = training.trained(kFirst);
    ASSERT_NE(find<Fold>(trained), nullptr);
    EXPECT_EQ(find<Fold>(trained)->offer.base, model(0));
    EXPECT_EQ(find<Fold>(trained)->offer.plan, offer(1).plan);
    const Effects next = training.folded(kFirst);
    EXPECT_TRUE(find<Train>(next) != nullptr || find<FetchModel>(next) != nullptr) << "then for the other";

    encoding.trained(kFirst);
    EXPECT_TRUE(encoding.offered(other).empty());
    const Effects late = encoding.encoded(kFirst, pending(1));
    ASSERT_NE(find<Resolve>(late), nullptr);
    EXPECT_EQ(find<Resolve>(late)->outcome, Outcome::kLate);
  }
}

TEST(SiteMachine, WorkersHaveNoMoreWeightTogetherThanTheRoundHasOnRecord) {
  EXPECT_TRUE(check_weights({100}, 100).ok());
  EXPECT_TRUE(check_weights({60, 40}, 100).ok());
  EXPECT_EQ(check_weights({101}, 100).error().code, Code::kPermissionDenied);
  EXPECT_EQ(check_weights({60, 41}, 100).error().message,
            "samples: a worker has 41, others of the site 60, and all together may have 100, as the site's token says "
            "(weight_max): give samples=n/1000 at all sites, or enrol this one with a token of a greater --weight-max");
  EXPECT_EQ(check_weights({1, ~std::uint64_t{0}}, 100).error().code, Code::kPermissionDenied);
  EXPECT_TRUE(check_weights({round::kWeightLimit - 1}, 0).ok()) << "nothing was told";
  EXPECT_EQ(check_weights({round::kWeightLimit - 1, 1}, 0).error().code, Code::kPermissionDenied);
}

TEST(SiteMachine, ADeclineIsOfTheAttemptThatItWasOfferedLast) {
  Offer again = offer(1);
  again.attempt = AttemptId(2);
  SiteMachine training({});
  training.offered(offer(1));
  training.model_ready(model(0));
  training.offered(again);
  SiteMachine encoding = training;
  encoding.trained(kFirst);
  const Error error{Code::kInternal, "out of memory"};
  for (const Effects& declined : {training.train_failed(kFirst, error), encoding.encode_failed(kFirst, error)}) {
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
  EXPECT_NE(find<Fold>(training.trained(kFirst)), nullptr);

  SiteMachine encoding({});
  encoding.offered(offer(1));
  encoding.model_ready(model(0));
  encoding.trained(kFirst);
  encoding.run_over(RunId(1));
  const Effects late = encoding.encoded(kFirst, pending(1));
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

// ---- what comes too late ------------------------------------------------------------------------------------------

// A late event about the first attempt's work is not taken for one about the second attempt's.
TEST(SiteMachine, WhatIsSaidOfAnEarlierWorkIsNotTakenForTheOneAtHand) {
  const Error error{Code::kInternal, "out of memory"};
  const WorkId second(2);
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.train_failed(kFirst, error);
  const Effects again = site.offered(offer(1));
  ASSERT_NE(find<Train>(again), nullptr);
  EXPECT_EQ(find<Train>(again)->work, second);
  EXPECT_TRUE(site.trained(kFirst).empty());
  EXPECT_TRUE(site.train_failed(kFirst, error).empty());
  EXPECT_EQ(site.doing(), "training");
  ASSERT_NE(find<Encode>(site.trained(second)), nullptr);
  EXPECT_TRUE(site.trained(second).empty()) << "once";
  EXPECT_TRUE(site.train_failed(second, error).empty());
  EXPECT_TRUE(site.encoded(kFirst, pending(1)).empty());
  EXPECT_TRUE(site.encode_failed(kFirst, error).empty());
  EXPECT_TRUE(site.folded(second).empty()) << "it is being encoded";
  EXPECT_FALSE(site.pending().has_value());
  EXPECT_EQ(site.doing(), "encoding");
  EXPECT_NE(find<Send>(site.encoded(second, pending(1))), nullptr);
  EXPECT_TRUE(site.encoded(second, pending(1)).empty());
  EXPECT_TRUE(site.encode_failed(second, error).empty());
}

TEST(SiteMachine, AFoldThatIsOverEndsItsOwnWorkAlone) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  site.model_ready(model(1));
  ASSERT_NE(find<Fold>(site.trained(kFirst)), nullptr);
  EXPECT_TRUE(site.folded(WorkId(2)).empty());
  EXPECT_EQ(site.doing(), "folding");
  EXPECT_TRUE(site.folded(kFirst).empty());
  ASSERT_NE(find<Train>(site.offered(offer(2))), nullptr);
  EXPECT_TRUE(site.folded(kFirst).empty());
  EXPECT_EQ(site.doing(), "training");
}

TEST(SiteMachine, AnOutcomeThatIsWrittenIsThatOfItsOwnSubmission) {
  SiteMachine site = sending();
  EXPECT_TRUE(site.resolved(pending(1)).empty()) << "nothing was decided";
  EXPECT_TRUE(site.pending().has_value());
  ASSERT_NE(find<Resolve>(site.answered(pending(1), Outcome::kCounted)), nullptr);
  Pending other = pending(1);
  other.submission = 9;
  EXPECT_TRUE(site.resolved(other).empty());
  EXPECT_EQ(site.doing(), "resolving");
  site.resolved(pending(1));
  EXPECT_FALSE(site.pending().has_value());
}

// ---- runs that are over -------------------------------------------------------------------------------------------

TEST(SiteMachine, ARunIsCompleteOnceNothingOfItIsInHand) {
  const Error error{Code::kInternal, "out of memory"};
  SiteMachine idle({});
  ASSERT_NE(find<CompleteRun>(idle.run_over(RunId(1))), nullptr);
  EXPECT_TRUE(idle.run_over(RunId(1)).empty()) << "its end counts once";

  SiteMachine training({});
  training.offered(offer(1));
  training.model_ready(model(0));
  SiteMachine encoding = training;
  SiteMachine failing = training;
  EXPECT_EQ(find<CompleteRun>(training.run_over(RunId(1))), nullptr);
  EXPECT_EQ(find<CompleteRun>(training.trained(kFirst)), nullptr);
  EXPECT_NE(find<CompleteRun>(training.folded(kFirst)), nullptr);

  failing.run_over(RunId(1));
  EXPECT_NE(find<CompleteRun>(failing.train_failed(kFirst, error)), nullptr);

  encoding.trained(kFirst);
  SiteMachine unable = encoding;
  EXPECT_EQ(find<CompleteRun>(encoding.run_over(RunId(1))), nullptr);
  EXPECT_EQ(find<CompleteRun>(encoding.encoded(kFirst, pending(1))), nullptr) << "its outcome is not written";
  EXPECT_NE(find<CompleteRun>(encoding.resolved(pending(1))), nullptr);
  unable.run_over(RunId(1));
  EXPECT_NE(find<CompleteRun>(unable.encode_failed(kFirst, error)), nullptr);

  SiteMachine submitted = sending();
  EXPECT_EQ(find<CompleteRun>(submitted.run_over(RunId(1))), nullptr);
  submitted.answered(pending(1), Outcome::kLate);
  EXPECT_NE(find<CompleteRun>(submitted.resolved(pending(1))), nullptr);
}

TEST(SiteMachine, EachRunThatIsOverIsCompleteOnItsOwn) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  EXPECT_TRUE(site.run_over(RunId(1)).empty());
  const Effects other = site.run_over(RunId(2));
  ASSERT_NE(find<CompleteRun>(other), nullptr);
  EXPECT_EQ(find<CompleteRun>(other)->run, RunId(2));
  const Effects failed = site.train_failed(kFirst, {Code::kInternal, "out of memory"});
  ASSERT_NE(find<CompleteRun>(failed), nullptr);
  EXPECT_EQ(find<CompleteRun>(failed)->run, RunId(1));
}

TEST(SiteMachine, ARunThatIsOpenedAgainIsNotOver) {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.run_over(RunId(1));
  EXPECT_TRUE(site.is_over(RunId(1)));
  site.offered(offer(1));
  EXPECT_FALSE(site.is_over(RunId(1)));
  EXPECT_EQ(find<CompleteRun>(site.train_failed(kFirst, {Code::kInternal, "out of memory"})), nullptr);
  EXPECT_NE(find<CompleteRun>(site.run_over(RunId(1))), nullptr);
}

}  // namespace
}  // namespace fluvial::edge
