// Where a site goes on with a transfer that was cut off.
#include <gtest/gtest.h>

#include "edge/logic/site_machine.h"
#include "edge/logic/test_support.h"

namespace fluvial::edge {
namespace {

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

// What a parent had when the round was opened is gone on with before it is durable, if at all.
TEST(SiteMachine, WhatWasJustEncodedIsSentFromItsStartWhateverAnOpeningSaid) {
  Pending ours = pending(1);
  ours.incarnation = Incarnation(4);
  ours.submission = 9;
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.trained(kFirst);
  Offer again = offer(1);
  again.received = Received{Incarnation(4), 9, 3};
  site.offered(again);
  const Effects effects = site.encoded(kFirst, ours);
  ASSERT_NE(find<Send>(effects), nullptr);
  EXPECT_EQ(find<Send>(effects)->first_chunk, 0u);
  EXPECT_EQ(find<Send>(site.offered(again))->first_chunk, 3u) << "what an opening says now";
}

// It may have most of it: begun from the start, all of it would travel twice.
TEST(SiteMachine, WhatIsEncodedAfterACutIsSentOnceTheRoundIsOpenedAgain) {
  Pending ours = pending(1);
  ours.incarnation = Incarnation(4);
  ours.submission = 9;
  SiteMachine site({});
  site.offered(offer(1));
  site.model_ready(model(0));
  site.trained(kFirst);
  site.connected();
  EXPECT_EQ(find<Send>(site.encoded(kFirst, ours)), nullptr) << "this session's parent has not said what it has";
  Offer again = offer(1);
  again.received = Received{Incarnation(4), 9, 3};
  const Effects effects = site.offered(again);
  ASSERT_NE(find<Send>(effects), nullptr);
  EXPECT_EQ(find<Send>(effects)->first_chunk, 3u);
}

}  // namespace
}  // namespace fluvial::edge
