#include "core/aggregate/plan_notes.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::aggregate {
namespace {

using ::testing::ElementsAre;
using ::testing::HasSubstr;
using ::testing::IsEmpty;

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

TEST(PlanNotes, NothingIsSaidOfTheOthers) {
  for (const char* codec : {"fp32", "int8", "topk", "sign", "sign:mode=vote", "ring:max=0.05", "qsgd"}) {
    EXPECT_THAT(notes(codec, "fedavgm"), IsEmpty()) << codec;
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
