#include "core/aggregate/plan_forms.h"

#include <gtest/gtest.h>

namespace fluvial::aggregate {
namespace {

TEST(PlanForms, AskForTheOptimizerThatGoesWithTheCodec) {
  round::Plan plan;
  for (const char* codec : {"int8", "dgc", "no such codec"}) {
    plan.codec = codec;
    plan.optimizer = round::parse_server_optimizer("fedadam:lr=0.5").value();
    EXPECT_FALSE(suit_optimizer(&plan));
    EXPECT_EQ(to_string(plan.optimizer), "fedadam:lr=0.5,beta1=0.9,beta2=0.99,tau=0.001") << codec;
  }
  for (const char* codec : {"onebit_adam", "onebit_adam:freeze=7", "onebit_adam:zstd=1"}) {
    plan.codec = codec;
    plan.optimizer = {};
    EXPECT_FALSE(check_plan_forms(plan).ok()) << codec << " alone is half of an algorithm";
    EXPECT_TRUE(suit_optimizer(&plan));
    EXPECT_EQ(plan.optimizer, round::ServerOptimizer::of(round::Optimizer::kOnebitAdam)) << codec;
    EXPECT_TRUE(check_plan_forms(plan).ok()) << codec;
  }
}

TEST(PlanForms, WhoWritesAPlanHearsWhatCannotBeMeant) {
  round::Plan plan;
  round::set_mode("async", &plan);
  plan.async_goal = 3;
  plan.quorum = 3;
  EXPECT_TRUE(check_plan_forms(plan).ok());
  plan.quorum = 5;
  EXPECT_FALSE(check_plan_forms(plan).ok());
}

}  // namespace
}  // namespace fluvial::aggregate
