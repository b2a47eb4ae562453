// Windows, at a site (docs/design/windows.md): it trains while an update of its own waits, and encodes after the
// outcome.
#include <gtest/gtest.h>

#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

constexpr RunId kWindowsRun{1};
constexpr WorkId kSecond{2};

Offer window(std::uint64_t round, bool counted = false, std::uint32_t staleness_max = 3) {
  Offer made = offer(round, counted);
  made.late = round::Lateness{staleness_max, round::staleness_factors(staleness_max, 0.5), {}, 2};
  return made;
}

// Trained from model 0 while the first window was committed without it; its update is on its way into the second.
SiteMachine waiting() {
  SiteMachine site({});
  site.offered(window(1));
  EXPECT_NE(find<Train>(site.model_ready(model(0))), nullptr);
  site.committed(kWindowsRun, RoundId(1), Verdict{}, model(1));
  site.offered(window(2));
  EXPECT_NE(find<Encode>(site.trained(kFirst)), nullptr);
  EXPECT_EQ(find<Send>(site.encoded(kFirst, pending(1)))->offer.round, RoundId(2));
  return site;
}
// The same, in training from model 2 for the third window, which the update of the first enters.
SiteMachine beside() {
  SiteMachine site = waiting();
  site.committed(kWindowsRun, RoundId(2), Verdict{}, model(2));
  EXPECT_NE(find<Ask>(site.offered(window(3))), nullptr);
  const Effects here = site.model_ready(model(2));
  EXPECT_NE(find<Train>(here), nullptr) << "it waits for an outcome, not for work";
  EXPECT_EQ(find<Train>(here)->offer.round, RoundId(3));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  return site;
}

TEST(SiteWindows, TrainsFromANewerModelWhileItsUpdateWaits) { beside(); }

TEST(SiteWindows, MakesOneUpdateFromEachModel) {
  SiteMachine site({});
  site.offered(window(1));
  site.model_ready(model(0));
  site.trained(kFirst);
  site.encoded(kFirst, pending(1));
  const Effects again = site.offered(window(1));  // another attempt: the model is the one that its update is from
  EXPECT_EQ(find<Train>(again), nullptr);
  EXPECT_EQ(find<FetchModel>(again), nullptr);
}

TEST(SiteWindows, EncodesNothingNewerBeforeTheOutcome) {
  SiteMachine site = beside();
  const Effects trained = site.trained(kSecond);
  EXPECT_EQ(find<Encode>(trained), nullptr) << "the residual is what the outcome leaves";
  EXPECT_EQ(find<Fold>(trained), nullptr);
  const Effects counted = site.committed(kWindowsRun, RoundId(3), Verdict{pending(1).digest}, model(3));
  ASSERT_NE(find<Resolve>(counted), nullptr);
  EXPECT_EQ(find<Resolve>(counted)->outcome, Outcome::kCounted);
  const Effects resolved = site.resolved(pending(1));
  ASSERT_NE(find<Encode>(resolved), nullptr);
  EXPECT_EQ(find<Encode>(resolved)->offer.round, RoundId(3)) << "its own round is that of the model it is from";
  site.offered(window(4));
  const Effects encoded = site.encoded(kSecond, pending(3));
  ASSERT_NE(find<Send>(encoded), nullptr);
  EXPECT_EQ(find<Send>(encoded)->offer.round, RoundId(4));
}

// The window in which its update counted has it already.
TEST(SiteWindows, WhatItMakesBesideIsNotForTheWindowThatCountsItsUpdate) {
  SiteMachine site = beside();
  site.offered(window(3, /*counted=*/true));
  site.trained(kSecond);
  const Effects told = site.answered(pending(1), Outcome::kPending);
  EXPECT_EQ(find<Send>(told), nullptr);
  site.committed(kWindowsRun, RoundId(3), Verdict{pending(1).digest}, model(3));
  EXPECT_NE(find<Encode>(site.resolved(pending(1))), nullptr);
  EXPECT_EQ(find<Send>(site.encoded(kSecond, pending(3)))->offer.round, RoundId(3)) << "and the next takes it";
  EXPECT_NE(find<Ask>(site.offered(window(4))), nullptr);
  EXPECT_EQ(find<Send>(site.answered(pending(3), Outcome::kPending))->offer.round, RoundId(4));
}

TEST(SiteWindows, WhatIsTooOldWhenItsUpdateIsSettledGoesIntoTheResidual) {
  SiteMachine site = beside();
  site.trained(kSecond);
  for (std::uint64_t round = 3; round <= 6; ++round) {
    site.committed(kWindowsRun, RoundId(round), Verdict{}, model(round));
    site.offered(window(round + 1));
  }
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kLate)), nullptr);
  const Effects resolved = site.resolved(pending(1));
  EXPECT_EQ(find<Encode>(resolved), nullptr);
  EXPECT_NE(find<Fold>(resolved), nullptr);
}

TEST(SiteWindows, FailedTrainingBesideDeclinesNothing) {
  SiteMachine site = beside();
  const Effects failed = site.train_failed(kSecond, {Code::kInternal, "no"});
  EXPECT_EQ(find<DeclineRound>(failed), nullptr) << "its update is to enter that window";
  site.committed(kWindowsRun, RoundId(3), Verdict{pending(1).digest}, model(3));
  site.resolved(pending(1));
  EXPECT_NE(find<FetchModel>(site.offered(window(4))), nullptr) << "and then it goes on";
}

TEST(SiteWindows, FetchesNoModelThatItDoesNotTrainFrom) {
  SiteMachine site({});
  site.offered(window(1));
  site.model_ready(model(0));
  EXPECT_FALSE(site.wants_newer());
  EXPECT_EQ(find<FetchModel>(site.committed(kWindowsRun, RoundId(1), Verdict{}, model(1))), nullptr);
  site.offered(window(2));
  EXPECT_EQ(find<FetchModel>(site.committed(kWindowsRun, RoundId(2), Verdict{}, model(2))), nullptr);
  site.offered(window(3));
  site.trained(kFirst);
  const Effects encoded = site.encoded(kFirst, pending(1));
  ASSERT_NE(find<FetchModel>(encoded), nullptr) << "the next training begins with it";
  EXPECT_EQ(find<FetchModel>(encoded)->model, model(2));
}

// On a slow line it would fetch each window's model and throw it away.
TEST(SiteWindows, TrainingThatIsTooOldFetchesNoModelBeforeItIsDone) {
  SiteMachine site({});
  site.offered(window(1));
  site.model_ready(model(0));
  for (std::uint64_t round = 1; round <= 6; ++round) {
    EXPECT_EQ(find<FetchModel>(site.committed(kWindowsRun, RoundId(round), Verdict{}, model(round))), nullptr) << round;
    EXPECT_EQ(find<FetchModel>(site.offered(window(round + 1))), nullptr) << round;
  }
  EXPECT_NE(find<Fold>(site.trained(kFirst)), nullptr);
  const Effects folded = site.folded(kFirst);
  ASSERT_NE(find<FetchModel>(folded), nullptr);
  EXPECT_EQ(find<FetchModel>(folded)->model, model(6));
}

TEST(SiteWindows, WhoHasTrainedAndWaitsForAnOutcomeWaits) {
  SiteMachine site = beside();
  EXPECT_EQ(site.doing(), "training");
  site.trained(kSecond);
  EXPECT_EQ(site.doing(), "waiting");
}

TEST(SiteWindows, FetchesTheLastModelWhenTheRunIsOver) {
  SiteMachine site({});
  site.offered(window(1));
  site.model_ready(model(0));
  EXPECT_EQ(find<FetchModel>(site.committed(kWindowsRun, RoundId(1), Verdict{}, model(1))), nullptr);
  const Effects over = site.run_over(kWindowsRun);
  ASSERT_NE(find<FetchModel>(over), nullptr) << "its workers wait for it";
  EXPECT_EQ(find<FetchModel>(over)->model, model(1));
}

TEST(SiteWindows, ARunThatIsOverLeavesNothingWaiting) {
  SiteMachine site = beside();
  site.trained(kSecond);
  EXPECT_NE(find<Ask>(site.run_over(kWindowsRun)), nullptr);
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kCounted)), nullptr);
  EXPECT_NE(find<Fold>(site.resolved(pending(1))), nullptr);
  EXPECT_NE(find<CompleteRun>(site.folded(kSecond)), nullptr);
}

// On a line that takes longer for a model than a window lasts it would begin anew for ever.
TEST(SiteWindows, AModelThatComesIsFetchedToItsEnd) {
  SiteMachine site({});
  site.offered(window(1));
  site.model_flows(model(0));
  EXPECT_EQ(find<FetchModel>(site.committed(kWindowsRun, RoundId(1), Verdict{}, model(1))), nullptr);
  EXPECT_EQ(find<FetchModel>(site.offered(window(2))), nullptr);
  const Effects here = site.model_ready(model(0));
  ASSERT_NE(find<Train>(here), nullptr);
  EXPECT_EQ(find<Train>(here)->offer.round, RoundId(1));
}

TEST(SiteWindows, OneThatDoesNotComeIsLeftForTheNewest) {
  SiteMachine site({});
  site.offered(window(1));
  const Effects committed = site.committed(kWindowsRun, RoundId(1), Verdict{}, model(1));
  ASSERT_NE(find<FetchModel>(committed), nullptr) << "the parent may have it no more";
  EXPECT_EQ(find<FetchModel>(committed)->model, model(1));
}

// It was on its way when the window opened, and let go on.
TEST(SiteWindows, WhatWentNowhereIsSentAgainInTheWindowThatIsOpen) {
  SiteMachine site = waiting();
  site.committed(kWindowsRun, RoundId(2), Verdict{}, model(2));
  site.offered(window(3));
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  EXPECT_EQ(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  EXPECT_TRUE(site.not_taken(kWindowsRun, RoundId(3)).empty()) << "of this window: it is asked again by an opening";
  EXPECT_NE(find<Ask>(site.not_taken(kWindowsRun, RoundId(2))), nullptr);
  EXPECT_NE(find<Send>(site.answered(pending(1), Outcome::kPending)), nullptr);
  EXPECT_NE(find<Ask>(site.turned_away(kWindowsRun, RoundId(2))), nullptr) << "or somebody has it already";
}

TEST(SiteWindows, InForbiddenHoursNothingIsBegunBeside) {
  SiteMachine site = waiting();
  site.committed(kWindowsRun, RoundId(2), Verdict{}, model(2));
  site.model_ready(model(2));
  const Effects opened = site.offered(window(3), Error{Code::kFailedPrecondition, "not at night"});
  EXPECT_EQ(find<Train>(opened), nullptr);
  EXPECT_NE(find<Ask>(opened), nullptr) << "what it has made may go";
}

// The submission is in both histories: what was trained beside it goes into the residual that its outcome leaves.
TEST(SiteWindows, InAnotherHistoryWhatWasMadeBesideWaitsForTheOutcome) {
  SiteMachine site = beside();
  site.trained(kSecond);
  EXPECT_NE(find<EnterHistory>(site.history_begins()), nullptr);
  const Effects entered = site.history_entered(
      pending(1), round::Common({}, {{round::HistoryId(7), Epoch(100), RunId(1), {{RunId(1), RoundId(1)}}}}));
  EXPECT_EQ(find<Fold>(entered), nullptr) << "the submission before has no outcome";
  EXPECT_NE(find<Resolve>(site.answered(pending(1), Outcome::kLate)), nullptr);
  const Effects resolved = site.resolved(pending(1));
  ASSERT_NE(find<Fold>(resolved), nullptr);
  EXPECT_TRUE(find<Fold>(resolved)->lost);
}

}  // namespace
}  // namespace fluvial::edge
