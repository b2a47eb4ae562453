#include "edge/logic/worker_outcomes.h"

#include <gtest/gtest.h>

namespace fluvial::edge {
namespace {

constexpr RunId kRun{3};

TEST(WorkerOutcomes, FollowAResultIntoItsUpdateAndToItsOutcome) {
  WorkerOutcomes outcomes;
  EXPECT_FALSE(outcomes.of(kRun, "a"));
  for (const char* worker : {"a", "b"}) outcomes.answered(kRun, RoundId(1), worker);
  EXPECT_EQ(outcomes.of(kRun, "a"), (LastResult{RoundId(1), {}}));
  outcomes.used(kRun, RoundId(1), {"a"});
  EXPECT_EQ(outcomes.of(kRun, "a"), (LastResult{RoundId(1), Outcome::kPending}));
  EXPECT_EQ(outcomes.of(kRun, "b"), (LastResult{RoundId(1), {}})) << "the job went on without it";
  outcomes.answered(kRun, RoundId(2), "c");
  outcomes.used(kRun, RoundId(2), {"c"});
  outcomes.decided(kRun, RoundId(1), Outcome::kLate);
  EXPECT_EQ(outcomes.of(kRun, "a"), (LastResult{RoundId(1), Outcome::kLate}));
  EXPECT_EQ(outcomes.of(kRun, "c"), (LastResult{RoundId(2), Outcome::kPending}));
  outcomes.dropped(kRun, RoundId(2));
  EXPECT_EQ(outcomes.of(kRun, "c"), (LastResult{RoundId(2), {}}));
  EXPECT_FALSE(outcomes.of(RunId(4), "a"));
  outcomes.forget(kRun);
  EXPECT_FALSE(outcomes.of(kRun, "a"));
}

TEST(WorkerOutcomes, AreBounded) {
  WorkerOutcomes outcomes;
  for (std::uint64_t i = 1; i <= WorkerOutcomes::kWorkersMax + 1; ++i) {
    outcomes.answered(kRun, RoundId(i), "w" + std::to_string(i));
  }
  EXPECT_FALSE(outcomes.of(kRun, "w1")) << "the oldest";
  EXPECT_TRUE(outcomes.of(kRun, "w2"));
  for (std::uint64_t i = 0; i < WorkerOutcomes::kRunsMax; ++i) outcomes.answered(RunId(10 + i), RoundId(1), "w");
  EXPECT_FALSE(outcomes.of(kRun, "w2"));
  EXPECT_TRUE(outcomes.of(RunId(10), "w"));
}

}  // namespace
}  // namespace fluvial::edge
