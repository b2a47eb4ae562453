#include "core/aggregate/plan_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::aggregate {
namespace {

using ::testing::AllOf;
using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;
using ::testing::Not;

std::vector<std::string> notes(const std::string& codec, const std::string& optimizer) {
  round::Plan plan;
  plan.codec = codec;
  plan.optimizer = round::parse_server_optimizer(optimizer).value();
  return plan_notes(plan);
}

TEST(PlanNotes, AMomentumAtTheSitesAndAnotherAtTheServer) {
  for (const char* optimizer :
       {"fedavgm", "nesterov", "delayed_nesterov", "lars", "fedadagrad", "fedadam", "fedyogi", "lamb"}) {
    EXPECT_THAT(notes("dgc:ratio=0.01", optimizer), ElementsAre(HasSubstr(optimizer))) << optimizer;
  }
  EXPECT_THAT(notes("dgc", "fedavgm").front(), HasSubstr("take optimizer fedavg, or dgc:momentum=0"));
  for (const char* optimizer : {"fedavg", "signsgd", "mean", "fedavgm:momentum=0", "fedadam:beta1=0"}) {
    EXPECT_THAT(notes("dgc", optimizer), IsEmpty()) << optimizer;
  }
  EXPECT_THAT(notes("dgc:momentum=0", "fedavgm"), IsEmpty());
}

TEST(PlanNotes, MomentumMultipliesWhatRandkLeavesForLater) {
  EXPECT_THAT(notes("randk:ratio=0.1", "fedavgm"), ElementsAre(HasSubstr("randk:mode=unbiased")));
  EXPECT_THAT(notes("randk:ratio=0.1,mode=unbiased", "fedavgm"), IsEmpty());
  EXPECT_THAT(notes("randk:ratio=0.1", "fedavg"), IsEmpty());
}

round::Plan plan_with(const std::string& codec, const std::string& optimizer, const std::string& averaged) {
  round::Plan plan;
  plan.codec = codec;
  plan.optimizer = round::parse_server_optimizer(optimizer).value();
  if (!averaged.empty()) plan.optimizer.averaged = averaged;
  return plan;
}

std::vector<std::string> notes_of_norm(const round::Plan& plan, const std::string& tensor,
                                       round::DType dtype = round::DType::kF32) {
  return model_notes(plan, round::Schema::make({{"bn.weight", round::DType::kF32, {4}}, {tensor, dtype, {4}}}).value());
}

TEST(PlanNotes, ServerOptimizersThatStepRunningStatistics) {
  for (const char* optimizer : {"fedavgm", "fedadam", "lamb", "fedavg:lr=2", "fedyogi"}) {
    const round::Plan usual = plan_with("fp32", optimizer, "");
    EXPECT_THAT(notes_of_norm(usual, "bn.running_var"), IsEmpty()) << optimizer << " averages them";
    EXPECT_THAT(notes_of_norm(plan_with("fp32", optimizer, "none"), "bn.running_var"),
                ElementsAre(AllOf(HasSubstr("(bn.running_var)"), HasSubstr("Name them in optimizer.averaged"))))
        << optimizer;
    EXPECT_THAT(notes_of_norm(plan_with("fp32", optimizer, "*var"), "bn.running_var"), IsEmpty()) << optimizer;
  }
  for (const char* optimizer : {"fedavg", "mean"}) {
    EXPECT_THAT(notes_of_norm(plan_with("fp32", optimizer, "none"), "bn.running_var"), IsEmpty()) << optimizer;
  }
  EXPECT_THAT(notes_of_norm(plan_with("fp32", "fedavgm", "none"), "bn.bias"), IsEmpty());
  EXPECT_THAT(notes_of_norm(plan_with("fp32", "fedavgm", "none"), "running_var", round::DType::kI64), IsEmpty());
  EXPECT_THAT(notes_of_norm(plan_with("onebit_adam", "onebit_adam", ""), "bn.running_var"),
              ElementsAre(HasSubstr("Take another optimizer, keep them at the sites")));
}

TEST(PlanNotes, WhatReachesRunningStatisticsInexactly) {
  for (const char* codec : {"int8", "topk", "sign", "powersgd", "int8:zstd=3", "dgc"}) {
    const round::Plan plan = plan_with(codec, "fedavg", "");
    EXPECT_THAT(notes_of_norm(plan, "bn.running_var"),
                ElementsAre(AllOf(HasSubstr("(bn.running_var)"), HasSubstr("Take codec fp32, bf16 or fp16"))))
        << codec;
    EXPECT_THAT(notes_of_norm(plan, "bn.bias"), IsEmpty()) << codec;
  }
  for (const char* codec : {"fp32", "bf16", "fp16", "fp32:zstd=1"}) {
    round::Plan plan = plan_with(codec, "fedavg", "");
    EXPECT_THAT(notes_of_norm(plan, "bn.running_var"), IsEmpty()) << codec;
    plan.late = "next";
    EXPECT_THAT(notes_of_norm(plan, "bn.running_var"), ElementsAre(HasSubstr("late = \"residual\""))) << codec;
    EXPECT_THAT(notes_of_norm(plan, "bn.bias"), IsEmpty()) << codec;
  }
}

TEST(PlanNotes, NothingIsSaidOfTheOthers) {
  for (const char* codec : {"fp32", "int8", "topk", "sign", "powersgd", "qsgd"}) {
    EXPECT_THAT(notes(codec, "fedavgm"), IsEmpty()) << codec;
  }
}

TEST(PlanNotes, AVoteIsAStepOfItsLearningRate) {
  for (const char* optimizer : {"fedavg", "fedavgm", "nesterov", "delayed_nesterov", "fedavg:lr=0.11"}) {
    EXPECT_THAT(notes("sign:mode=vote", optimizer), ElementsAre(HasSubstr("take optimizer signsgd"))) << optimizer;
  }
  EXPECT_THAT(notes("sign:mode=vote", "fedavg").front(), HasSubstr("moves it by up to learning_rate = 1:"));
  for (const char* optimizer : {"signsgd", "signsgd:lr=1", "fedadam", "lars", "mean", "fedavg:lr=0.1"}) {
    EXPECT_THAT(notes("sign:mode=vote", optimizer), IsEmpty()) << optimizer;
  }
}

TEST(PlanNotes, WhatRingCutsOffNeedsABound) {
  round::Plan plan;
  plan.codec = "ring:max=0.05";
  EXPECT_THAT(plan_notes(plan), ElementsAre(HasSubstr("set residual.norm_max")));
  plan.residual_norm_max = 10;
  EXPECT_THAT(plan_notes(plan), IsEmpty());
}

TEST(PlanNotes, KeysOfAModeThatThePlanDoesNotHave) {
  round::Plan plan;
  EXPECT_THAT(plan_notes(plan), IsEmpty());
  plan.async_goal = 3;
  EXPECT_THAT(plan_notes(plan), ElementsAre(AllOf(HasSubstr("nothing is done with async.goal: write mode = \"async\""),
                                                  Not(HasSubstr("async.fairness")))));
  plan.async_lead_max = 1;
  plan.async_drift_max = 3;
  plan.async_fairness = "rate";
  EXPECT_THAT(plan_notes(plan),
              ElementsAre(HasSubstr("with async.goal, async.lead_max, async.drift_max, async.fairness:")));
  plan.staleness_max = 2;
  EXPECT_THAT(plan_notes(plan), ElementsAre(HasSubstr("synchronous"), HasSubstr("done with staleness_max: ")));
  plan.staleness_power = 1;
  round::set_mode("async", &plan);
  EXPECT_THAT(plan_notes(plan), IsEmpty());
  plan.soft_deadline_min = {};
  EXPECT_THAT(plan_notes(plan), ElementsAre(HasSubstr("deadlines.soft_min_ms")));

  round::Plan late;
  late.staleness_power = 1;
  EXPECT_THAT(plan_notes(late), ElementsAre(HasSubstr("done with staleness_power: write late = \"next\"")));
  late.late = "next";
  EXPECT_THAT(plan_notes(late), IsEmpty());
}

// What a plan file may not say, and a plan that is older may.
TEST(PlanNotes, AQuorumThatIsAboveTheGoal) {
  round::Plan plan;
  round::set_mode("async", &plan);
  plan.async_goal = 3;
  plan.quorum = 5;
  EXPECT_THAT(plan_notes(plan), ElementsAre(HasSubstr("write async.goal = 5, or a smaller quorum")));
}

TEST(PlanNotes, AMomentumThatDecaysWithEachWindow) {
  round::Plan plan;
  round::set_mode("async", &plan);
  const auto of = [&](const char* optimizer) {
    plan.optimizer = round::parse_server_optimizer(optimizer).value();
    return plan_notes(plan);
  };
  for (const char* optimizer : {"fedavgm", "nesterov", "lars", "fedadagrad", "fedadam", "fedyogi", "lamb"}) {
    EXPECT_THAT(of(optimizer), ElementsAre(AllOf(HasSubstr(optimizer), HasSubstr("delayed_nesterov")))) << optimizer;
  }
  for (const char* optimizer :
       {"fedavg", "signsgd", "mean", "delayed_nesterov", "fedavgm:momentum=0", "fedadagrad:beta1=0"}) {
    EXPECT_THAT(of(optimizer), IsEmpty()) << optimizer;
  }
}

TEST(PlanNotes, AWarmUpThatTheRunDoesNotSurvive) {
  round::Plan plan;
  plan.rounds = 100;
  plan.codec = "onebit_adam";
  plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kOnebitAdam);
  EXPECT_THAT(plan_notes(plan), ElementsAre(HasSubstr("warms up for freeze=100 rounds, in fp32, and the run has 100")));
  plan.codec = "onebit_adam:freeze=20";
  EXPECT_THAT(plan_notes(plan), IsEmpty());
  plan.update_norm_max = 3;
  EXPECT_THAT(plan_notes(plan), ElementsAre(HasSubstr("updates with momentum in them")));
}

}  // namespace
}  // namespace fluvial::aggregate
