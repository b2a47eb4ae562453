// Rounds with several passes at a site, stepped by hand.
#include <gtest/gtest.h>

#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

constexpr std::byte kP{1}, kOtherP{2}, kState{7};

round::VectorRef vector_of(std::byte name) { return {{name}, 64}; }

Offer first(std::uint32_t attempt = 1, bool with_state = false) {
  Offer asked = offer(1);
  asked.attempt = AttemptId(attempt);
  asked.pass = round::Pass{.index = 0, .count = 2, .value_count = 16};
  if (with_state) asked.pass->state = vector_of(kState);
  return asked;
}
Offer second(std::byte mean = kP, std::uint32_t attempt = 1) {
  Offer asked = first(attempt);
  asked.pass = round::Pass{.index = 1, .count = 2, .value_count = 20, .mean = vector_of(mean)};
  return asked;
}
Pending first_made() {
  Pending made = pending(1);
  made.incarnation = Incarnation(4);
  made.submission = 9;
  return made;
}
Pending second_made(std::byte mean = kP, std::uint64_t submission = 10) {
  Pending made = first_made();
  made.digest[2] = mean;
  made.submission = submission;
  made.from = {1, {mean}};
  made.first = {Incarnation(4), 9};
  return made;
}

// Its first pass is with the parent.
SiteMachine in_first() {
  SiteMachine site({});
  site.offered(first());
  site.model_ready(model(0));
  site.trained(kFirst);
  EXPECT_NE(find<Send>(site.encoded(kFirst, first_made())), nullptr);
  return site;
}
SiteMachine in_second() {
  SiteMachine site = in_first();
  site.offered(second());
  site.mean_ready({kP});
  EXPECT_NE(find<Send>(site.pass_encoded(second_made())), nullptr);
  return site;
}
Verdict counted(const Pending& what) { return {.counted = what.digest}; }

TEST(PassesOfASite, TheMeanIsFetchedThePassMadeDurableAndThenSent) {
  SiteMachine site = in_first();
  const Effects asked = site.offered(second());
  ASSERT_NE(find<FetchMean>(asked), nullptr);
  EXPECT_EQ(find<FetchMean>(asked)->offer.pass->mean, vector_of(kP));
  EXPECT_EQ(find<Send>(asked), nullptr);
  EXPECT_NE(find<StopSending>(asked), nullptr) << "the first one is over";
  EXPECT_TRUE(site.mean_ready({kOtherP}).empty()) << "of another attempt";
  const Effects here = site.mean_ready({kP});
  ASSERT_NE(find<EncodePass>(here), nullptr);
  EXPECT_EQ(find<EncodePass>(here)->pending, first_made());
  EXPECT_EQ(site.doing(), "encoding");
  EXPECT_TRUE(site.mean_ready({kP}).empty());
  const Effects made = site.pass_encoded(second_made());
  ASSERT_NE(find<Send>(made), nullptr);
  EXPECT_EQ(find<Send>(made)->offer.pass_index(), 1u);
  EXPECT_EQ(site.pending(), second_made());
  const Effects committed = site.committed(RunId(1), RoundId(1), counted(second_made()), model(1));
  ASSERT_NE(find<Resolve>(committed), nullptr);
  EXPECT_EQ(find<Resolve>(committed)->outcome, Outcome::kCounted);
}

TEST(PassesOfASite, TheFirstWaitsForTheModelAndTheState) {
  SiteMachine site({});
  const Effects asked = site.offered(first(1, true));
  EXPECT_NE(find<FetchModel>(asked), nullptr);
  ASSERT_NE(find<FetchState>(asked), nullptr);
  EXPECT_EQ(find<Train>(site.model_ready(model(0))), nullptr);
  EXPECT_EQ(find<Train>(site.state_ready({kOtherP})), nullptr) << "another one";
  const Effects again = site.offered(first(2, true));
  EXPECT_EQ(find<FetchModel>(again), nullptr) << "it is here";
  EXPECT_NE(find<FetchState>(again), nullptr);
  EXPECT_NE(find<Train>(site.state_ready({kState})), nullptr);

  SiteMachine other({});
  other.offered(first(1, true));
  EXPECT_EQ(find<Train>(other.state_ready({kState})), nullptr);
  EXPECT_NE(find<Train>(other.model_ready(model(0))), nullptr);
}

TEST(PassesOfASite, WhatIsThereIsSentAgain) {
  SiteMachine site = in_second();
  site.connected();
  EXPECT_NE(find<Send>(site.offered(second())), nullptr) << "to another parent";
  SiteMachine restarted(second_made());
  const Effects asked = restarted.offered(second(kP, 2));
  EXPECT_NE(find<Send>(asked), nullptr) << "the same mean gives the same bytes, in whichever attempt";
  EXPECT_EQ(find<FetchMean>(asked), nullptr);
}

TEST(PassesOfASite, ASiteThatWasRestartedBetweenTwoGoesOn) {
  SiteMachine site(first_made());
  EXPECT_NE(find<FetchMean>(site.offered(second())), nullptr) << "it needs no model for that";
  EXPECT_NE(find<EncodePass>(site.mean_ready({kP})), nullptr);
}

TEST(PassesOfASite, TheNextAttemptBeginsWithTheFirstAndMakesTheSecondAnew) {
  SiteMachine site = in_second();
  const Effects again = site.offered(first(2));
  ASSERT_NE(find<Send>(again), nullptr);
  EXPECT_EQ(find<Send>(again)->offer.pass_index(), 0u);
  EXPECT_EQ(site.pending(), second_made()) << "by that it would be named, if at all";
  EXPECT_NE(find<FetchMean>(site.offered(second(kOtherP, 2))), nullptr);
  EXPECT_NE(find<EncodePass>(site.mean_ready({kOtherP})), nullptr);
  EXPECT_NE(find<Send>(site.pass_encoded(second_made(kOtherP, 11))), nullptr);
  const Effects other = site.committed(RunId(1), RoundId(1), counted(second_made()), model(1));
  ASSERT_NE(find<Resolve>(other), nullptr);
  EXPECT_EQ(find<Resolve>(other)->outcome, Outcome::kLate) << "bytes that it does not hold any more";
}

TEST(PassesOfASite, ATransferGoesOnByTheNumberOfItsPass) {
  SiteMachine site(second_made());
  Offer again = second();
  again.received = Received{Incarnation(4), 10, 3};
  EXPECT_EQ(find<Send>(site.offered(again))->first_chunk, 3u);
  again.received->number = 9;
  EXPECT_EQ(find<Send>(site.offered(again))->first_chunk, 0u);
  Offer anew = first(2);
  anew.received = Received{Incarnation(4), 9, 2};
  EXPECT_EQ(find<Send>(site.offered(anew))->first_chunk, 2u);
  anew.received->number = 10;
  EXPECT_EQ(find<Send>(site.offered(anew))->first_chunk, 0u);
}

TEST(PassesOfASite, WhatIsOfferedWhileOneIsEncodedComesAfterIt) {
  SiteMachine site = in_first();
  site.offered(second());
  site.mean_ready({kP});
  EXPECT_TRUE(site.offered(first(2)).empty()) << "the next attempt";
  const Effects made = site.pass_encoded(second_made());
  ASSERT_NE(find<Send>(made), nullptr);
  EXPECT_EQ(find<Send>(made)->offer.attempt, AttemptId(2));
  EXPECT_EQ(find<Send>(made)->offer.pass_index(), 0u);

  SiteMachine overtaken = in_first();
  overtaken.offered(second());
  overtaken.mean_ready({kP});
  overtaken.offered(second(kOtherP, 2));
  EXPECT_NE(find<FetchMean>(overtaken.pass_encoded(second_made())), nullptr);
}

TEST(PassesOfASite, AnOutcomeWaitsUntilThePassIsWritten) {
  SiteMachine site = in_first();
  site.offered(second());
  site.mean_ready({kP});
  EXPECT_EQ(find<Resolve>(site.committed(RunId(1), RoundId(1), {.late = true}, model(1))), nullptr);
  EXPECT_TRUE(site.history_begins().empty()) << "nothing is entered while it is written";
  const Effects made = site.pass_encoded(second_made());
  ASSERT_NE(find<Resolve>(made), nullptr);
  EXPECT_EQ(find<Resolve>(made)->outcome, Outcome::kLate);
  EXPECT_EQ(find<Send>(made), nullptr);
  EXPECT_NE(find<EnterHistory>(site.resolved(second_made())), nullptr);

  SiteMachine fetching = in_first();
  fetching.offered(second());
  EXPECT_NE(find<Resolve>(fetching.committed(RunId(1), RoundId(1), {.late = true}, model(1))), nullptr);
  EXPECT_TRUE(fetching.mean_ready({kP}).empty());
}

TEST(PassesOfASite, OneThatCannotBeMadeIsDeclinedAndTheSubmissionStays) {
  SiteMachine site = in_first();
  site.offered(second());
  site.mean_ready({kP});
  const Effects failed = site.pass_failed({Code::kResourceExhausted, "no room"});
  ASSERT_NE(find<DeclineRound>(failed), nullptr);
  EXPECT_EQ(find<DeclineRound>(failed)->attempt, AttemptId(1));
  EXPECT_EQ(site.pending(), first_made());
  EXPECT_NE(find<Send>(site.offered(first(2))), nullptr) << "the next attempt asks again";
}

// Else the commit would name it refused, and what it has trained would be dropped.
TEST(PassesOfASite, WhateverFailsThereItsUpdateIsNotSaidToBeNoGood) {
  for (const Code code : {Code::kDataLoss, Code::kInvalidArgument}) {
    SiteMachine site = in_first();
    site.offered(second());
    site.mean_ready({kP});
    const Effects failed = site.pass_failed({code, "a damaged file"});
    ASSERT_NE(find<DeclineRound>(failed), nullptr);
    EXPECT_FALSE(round::drops_update(find<DeclineRound>(failed)->error.code));
    EXPECT_EQ(find<DeclineRound>(failed)->error.message, "a damaged file");
  }
}

// Its folder is an older copy: of the round that is open it has nothing, though it is named in its second pass.
TEST(PassesOfASite, ALaterPassIsNotTrainedForOnceAnOlderSubmissionIsResolved) {
  Pending older = first_made();
  older.round = RoundId(0);
  SiteMachine site(older);
  site.offered(second());
  const Effects told = site.answered(older, Outcome::kLate);
  ASSERT_NE(find<Resolve>(told), nullptr);
  const Effects done = site.resolved(older);
  EXPECT_NE(find<DeclineRound>(done), nullptr);
  EXPECT_EQ(find<FetchModel>(done), nullptr);
  EXPECT_EQ(find<Train>(done), nullptr);
}

TEST(PassesOfASite, WithoutTheFirstThereIsNothingToMakeTheSecondOf) {
  SiteMachine site({});
  const Effects asked = site.offered(second());
  ASSERT_NE(find<DeclineRound>(asked), nullptr);
  EXPECT_EQ(find<Train>(asked), nullptr);
  EXPECT_EQ(find<FetchModel>(asked), nullptr);
  Offer is_counted = second();
  is_counted.counted = true;
  EXPECT_TRUE(SiteMachine({}).offered(is_counted).empty()) << "an earlier incarnation's is in";
}

TEST(PassesOfASite, ACutWhileOneIsEncodedIsGoneOnWithByTheNextOpening) {
  SiteMachine site = in_first();
  site.offered(second());
  site.mean_ready({kP});
  site.connected();
  EXPECT_EQ(find<Send>(site.pass_encoded(second_made())), nullptr) << "no round is open in this session yet";
  EXPECT_NE(find<Send>(site.offered(second())), nullptr);
}

}  // namespace
}  // namespace fluvial::edge
