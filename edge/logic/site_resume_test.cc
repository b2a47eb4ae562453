// Where a site goes on with a transfer that was cut off.
#include <gtest/gtest.h>

#include "edge/logic/site_machine.h"
#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

Pending ours() {
  Pending submission = pending(1);
  submission.incarnation = Incarnation(4);
  submission.submission = 9;
  return submission;
}

Offer offer_of_one_who_has(const Received& received) {
  Offer again = offer(1);
  again.received = received;
  return again;
}

SiteMachine encoding() {
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.trained(kFirst);
  return site;
}

TEST(SiteMachine, GoesOnWhereTheParentStoppedReceivingThisSubmission) {
  struct Case {
    Received received;
    std::uint64_t expected;
  };
  for (const Case& c : {Case{{Incarnation(4), 9, 3}, 3}, Case{{Incarnation(3), 9, 3}, 0},
                        Case{{Incarnation(4), 8, 3}, 0}, Case{{}, 0}}) {
    SiteMachine site(ours());
    const Effects effects = site.offered(offer_of_one_who_has(c.received));
    ASSERT_NE(find<Send>(effects), nullptr);
    EXPECT_EQ(find<Send>(effects)->first_chunk, c.expected);
    EXPECT_EQ(find<Send>(site.offered(offer(1)))->first_chunk, 0u) << "another parent has nothing of it";
  }
}

// What a parent had when the round was opened is gone on with before it is durable, if at all.
TEST(SiteMachine, WhatWasJustEncodedIsSentFromItsStartWhateverAnOpeningSaid) {
  SiteMachine site = encoding();
  const Offer again = offer_of_one_who_has({Incarnation(4), 9, 3});
  site.offered(again);
  const Effects effects = site.encoded(kFirst, ours());
  ASSERT_NE(find<Send>(effects), nullptr);
  EXPECT_EQ(find<Send>(effects)->first_chunk, 0u);
  EXPECT_EQ(find<Send>(site.offered(again))->first_chunk, 3u) << "what an opening says now";
}

// It may have most of it: begun from the start, all of it would travel twice.
TEST(SiteMachine, WhatIsEncodedAfterACutIsSentOnceTheRoundIsOpenedAgain) {
  SiteMachine site = encoding();
  site.connected();
  EXPECT_EQ(find<Send>(site.encoded(kFirst, ours())), nullptr) << "this session's parent has not said what it has";
  const Offer again = offer_of_one_who_has({Incarnation(4), 9, 3});
  const Effects effects = site.offered(again);
  ASSERT_NE(find<Send>(effects), nullptr);
  EXPECT_EQ(find<Send>(effects)->first_chunk, 3u);
}

TEST(SiteMachine, WorkIsGivenUpWhenNoRoundTakesItAnyMore) {
  SiteMachine site({});
  EXPECT_TRUE(site.is_given_up(kFirst));
  site.offered(offer(1));
  site.model_ready(model(0));
  EXPECT_FALSE(site.is_given_up(kFirst));
  site.committed(RunId(1), RoundId(1), Verdict{.late = true}, model(1));
  EXPECT_TRUE(site.is_given_up(kFirst));
}

TEST(SiteMachine, ARunThatGoesOnIsAskedForAfterAnOutageThoughItNeverAskedThisSite) {
  SiteMachine site({});
  site.run_active(RunId(3));
  EXPECT_TRUE(site.ask_again().empty()) << "it was heard of on this session";
  ASSERT_NE(find<AskRun>(site.connected()), nullptr);
  site.run_active(RunId(3));
  EXPECT_TRUE(site.ask_again().empty());
  site.run_active(RunId(4));
  ASSERT_NE(find<AskRun>(site.ask_again()), nullptr) << "whether the one before goes on beside it";
  EXPECT_EQ(find<AskRun>(site.ask_again())->run, RunId(3));
  site.run_over(RunId(3));
  EXPECT_TRUE(site.ask_again().empty());
  EXPECT_NE(find<AskRun>(site.ask_run(RunId(2))), nullptr) << "a worker waits for its end";
  EXPECT_TRUE(site.ask_run(RunId(2)).empty());
}

}  // namespace
}  // namespace fluvial::edge
