#include "core/round/plan_written.h"

#include <gtest/gtest.h>

namespace fluvial::round {
namespace {

std::string refusal_of(const Plan& plan) {
  const Status read = check_plan(plan);
  EXPECT_TRUE(read.ok()) << "a journal may hold it: " << read.error().message;
  const Status status = check_written_plan(plan);
  return status.ok() ? "(taken)" : status.error().message;
}

TEST(WrittenPlan, AWindowHasToBeAbleToCommitAtItsGoal) {
  Plan plan;
  plan.name = "a";
  set_mode("async", &plan);
  plan.async_goal = 3;
  plan.quorum = 3;
  EXPECT_EQ(refusal_of(plan), "(taken)");
  plan.quorum = 5;
  EXPECT_EQ(
      refusal_of(plan),
      "participants.quorum = 5: expected at most async.goal = 3, at which a window commits: write async.goal = 5, "
      "or a smaller quorum");
  plan.async_goal = 0;
  EXPECT_EQ(refusal_of(plan), "(taken)") << "by how many take part";
  plan.async_goal = 3;
  plan.mode = "rounds";
  EXPECT_EQ(refusal_of(plan), "(taken)");
}

TEST(WrittenPlan, TheBestModelIsByTheLeastOrTheGreatestValue) {
  Plan plan;
  plan.name = "a";
  for (const char* text : {"", "loss:min", "accuracy:max", "test:accuracy:max"}) {
    plan.models_kept_best = text;
    EXPECT_EQ(refusal_of(plan), "(taken)") << text;
  }
  plan.models_kept_best = "accuracy";
  EXPECT_TRUE(check_plan(plan).ok()) << "as in journals of before, where it is the least";
  EXPECT_EQ(refusal_of(plan),
            "models_kept_best = 'accuracy': expected :min or :max behind the metric's name, as in accuracy:max");
  plan.models_kept_best = "acc:biggest";
  EXPECT_EQ(refusal_of(plan),
            "models_kept_best = 'acc:biggest': expected :min or :max behind the metric's name, as in acc:max");
  plan.models_kept_best = "test:accuracy";
  EXPECT_NE(refusal_of(plan), "(taken)");
}

}  // namespace
}  // namespace fluvial::round
