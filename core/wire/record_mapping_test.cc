#include "core/wire/record_mapping.h"

#include <gtest/gtest.h>

#include "core/wire/mapping.h"

namespace fluvial::wire {
namespace {

TEST(Declines, NameTheirAttempt) {
  const round::Decline decline{RunId(3), RoundId(7), AttemptId(2), {SiteId(9), {Code::kInternal, "out of memory"}}};
  const v1::Envelope message = to_envelope(decline);
  const round::Decline taken = from_proto(message.decline());
  EXPECT_EQ(taken.run, decline.run);
  EXPECT_EQ(taken.round, decline.round);
  EXPECT_EQ(taken.attempt, decline.attempt);
  EXPECT_EQ(taken.refusal, decline.refusal);
  v1::Decline older = message.decline();
  older.clear_attempt();
  EXPECT_EQ(from_proto(older).attempt, AttemptId(0));
  older.set_code(0);
  EXPECT_EQ(from_proto(older).refusal.error.code, Code::kInternal) << "a decline is never the code of success";
}

}  // namespace
}  // namespace fluvial::wire
