#include "core/aggregate/plan_codec.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::aggregate {
namespace {

using ::testing::AllOf;
using ::testing::AnyOf;
using ::testing::HasSubstr;

TEST(PlanCodec, IsWrittenOutInFull) {
  EXPECT_EQ(check_plan_codec("fp32").value(), "fp32");
  EXPECT_EQ(check_plan_codec("int8:block=512").value(), "int8:block=512,rounding=stochastic");
}

TEST(PlanCodec, RefusesWhatIsNone) {
  EXPECT_THAT(check_plan_codec("fp64").error().message, HasSubstr("\"fp64\": no such codec; expected one of fp32, "));
  EXPECT_THAT(check_plan_codec("int8:block=1").error().message, HasSubstr("expected 128 to 2048"));
}

TEST(PlanCodec, RingNeedsTheScaleThatAllSitesShare) {
  EXPECT_EQ(check_plan_codec("ring:max=0.05").value(), "ring:bits=8,max=0.05,rounding=stochastic");
  EXPECT_THAT(check_plan_codec("ring").error().message,
              HasSubstr("max is missing or 0: expected the greatest magnitude that is sent"));
}

TEST(PlanCodec, RingFitsIntoThePlansNumbers) {
  round::Plan plan;
  plan.codec = "int8";
  plan.value_abs_max = 0.001;
  EXPECT_TRUE(check_codec_fits(plan).ok()) << "another codec asks for nothing";
  plan.codec = "ring:max=0.05";
  EXPECT_EQ(
      check_codec_fits(plan).error().message,
      "value_abs_max = 0.001: expected at least 0.06201171875, the greatest value that codec \"ring:max=0.05\" sends");
  plan.value_abs_max = 0.06201171875;
  EXPECT_TRUE(check_codec_fits(plan).ok());
  plan.fraction_bits = 10;
  EXPECT_EQ(check_codec_fits(plan).error().code, Code::kInvalidArgument);
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("fraction_bits = 10: expected at least 11"));
  plan.fraction_bits = 11;
  EXPECT_TRUE(check_codec_fits(plan).ok());
  plan.late = "next";
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("expected at least 20"));
}

TEST(PlanCodec, OnebitAdamIsCodecAndOptimizer) {
  round::Plan plan;
  plan.codec = "onebit_adam:freeze=10";
  EXPECT_THAT(check_codec_fits(plan).error().message,
              HasSubstr("codec \"onebit_adam:freeze=10\" with optimizer fedavg: 1-bit Adam is both"));
  plan.optimizer = round::ServerOptimizer::of(round::Optimizer::kOnebitAdam);
  EXPECT_TRUE(check_codec_fits(plan).ok());
  plan.late = "next";
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("an update holds the momentum of its round"));
  plan.late = "residual";
  plan.mode = "async";
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("mode = \"async\" does not go with codec"));
  plan.mode = "rounds";
  plan.codec = "sign";
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("codec \"sign\" with optimizer onebit_adam"));
}

TEST(PlanCodec, AVoteIsOne) {
  round::Plan plan;
  plan.codec = "sign:mode=vote";
  plan.value_abs_max = 0.5;
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("value_abs_max = 0.5: expected at least 1"));
  plan.value_abs_max = 1;
  EXPECT_TRUE(check_codec_fits(plan).ok());
}

TEST(PlanCodec, SeveralPassesNeedSomethingToSendInEach) {
  round::Plan plan;
  plan.codec = "powersgd:rank=4";
  EXPECT_EQ(check_plan_codec(plan.codec).value(), plan.codec);
  const round::Schema matrix = round::Schema::make({{"w", round::DType::kF32, {64, 64}}}).value();
  EXPECT_TRUE(check_codec_fits(plan, matrix).ok());
  const round::Schema vector = round::Schema::make({{"b", round::DType::kF32, {4096}}}).value();
  EXPECT_EQ(check_codec_fits(plan, vector).error().code, Code::kInvalidArgument);
  EXPECT_THAT(check_codec_fits(plan, vector).error().message, HasSubstr("Use fp32, or a smaller rank"));
  plan.codec = "fp32";
  EXPECT_TRUE(check_codec_fits(plan, vector).ok());
}

// Of a round with several passes nothing enters another one.
TEST(PlanCodec, WithSeveralPassesARoundTakesItsOwnUpdatesAlone) {
  round::Plan plan;
  plan.codec = "powersgd:rank=4";
  EXPECT_TRUE(check_codec_fits(plan).ok());
  plan.late = "next";
  EXPECT_THAT(check_codec_fits(plan).error().message,
              AllOf(HasSubstr("late = \"next\" does not go with codec \"powersgd:rank=4\""), HasSubstr("Leave")));
  round::set_mode("async", &plan);
  EXPECT_THAT(check_codec_fits(plan).error().message, HasSubstr("mode = \"async\""));
  plan.codec = "topk";
  EXPECT_TRUE(check_codec_fits(plan).ok());
}

}  // namespace
}  // namespace fluvial::aggregate
