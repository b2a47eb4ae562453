#include "cli/advise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

namespace fluvial::cli {
namespace {

AdviceQuestion hospital() {
  return {.values = 25'000'000,
          .sites = 32,
          .up_bytes_per_s = 6.25e6,
          .down_bytes_per_s = 25e6,
          .rtt_s = 0.04,
          .step_s = 1.2};
}

TEST(Advise, ARoundIsWhatItsPartsTake) {
  const Advice advice = advise(hospital()).value();
  EXPECT_DOUBLE_EQ(advice.planned.down_s, 4);
  EXPECT_DOUBLE_EQ(advice.planned.up_s, 16);
  EXPECT_DOUBLE_EQ(advice.planned.train_s, 1.2);
  EXPECT_GT(advice.planned.other_s, 0.12);
  EXPECT_LT(advice.planned.training_share(), 0.1);
}

// 25 million values over 25 MB/s, at 2 bytes each, and at 1 byte and 4 for each block of 256.
TEST(Advise, TheWayDownIsWhatThePlanSaysByHand) {
  AdviceQuestion question = hospital();
  const double whole_other_s = advise(question)->planned.other_s;
  question.down = "bf16";
  const Advice rounded = advise(question).value();
  EXPECT_NEAR(rounded.planned.down_s, 2, 1e-4);
  EXPECT_NEAR(rounded.planned.other_s - whole_other_s, 25e6 * (3.3 + 0.6) * 1e-9, 1e-9) << "encoded and decoded";
  EXPECT_EQ(rounded.planned.down, "bf16");
  question.down = "delta:int8";
  EXPECT_NEAR(advise(question)->planned.down_s, 1 + 4.0 / 256, 1e-3);
  question.down = "delta:topk:ratio=0.01";
  EXPECT_NEAR(advise(question)->planned.down_s, 0.0502, 1e-4);
  question.down = "delta:qsgd";
  EXPECT_FALSE(advise(question).ok());
}

// 20 s of fp32 down are more than any codec saves on the way up: with int8 84 local steps, with a difference down 35.
TEST(Advise, AThinLineDownTakesADifference) {
  AdviceQuestion question = hospital();
  question.down_bytes_per_s = 5e6;
  const Advice advice = advise(question).value();
  EXPECT_EQ(advice.chosen.codec, "int8");
  EXPECT_EQ(advice.chosen.down, "delta:int8");
  EXPECT_EQ(advice.chosen.local_steps, 50U);
  EXPECT_EQ(advice.by_steps.front().front().down, "delta:int8") << "the second table is of the choice";
  EXPECT_EQ(advice.others.size(), 12U) << "six codecs, and two ways down";
  question.down = "delta:int8";
  EXPECT_EQ(advise(question)->others.size(), 6U) << "the plan's is that";
}

TEST(Advise, ThinLinesTakeACodecWithoutCostAndMoreSteps) {
  const Advice advice = advise(hospital()).value();
  EXPECT_EQ(advice.chosen.codec, "bf16");
  EXPECT_EQ(advice.chosen.down, "fp32") << "the mildest";
  EXPECT_EQ(advice.chosen.local_steps, 50U);
  EXPECT_GE(advice.chosen.training_share(), 0.8);
  AdviceQuestion thinner = hospital();
  thinner.up_bytes_per_s = 3e6;
  EXPECT_EQ(advise(thinner)->chosen.codec, "int8");
}

TEST(Advise, EachNumberOfLocalStepsHasItsRounds) {
  AdviceQuestion question = hospital();
  question.local_steps = 7;
  const Advice advice = advise(question).value();
  ASSERT_EQ(advice.by_steps.size(), 6U) << "the plan's is among them";
  EXPECT_EQ(advice.by_steps[2].front().local_steps, 7U);
  for (std::size_t i = 0; i < advice.by_steps.size(); ++i) {
    ASSERT_EQ(advice.by_steps[i].size(), 6U) << "codecs";
    EXPECT_GT(advice.by_steps[i].front().round_s(), advice.by_steps[i].back().round_s()) << "a codec makes it shorter";
    if (i > 0) {
      EXPECT_GT(advice.by_steps[i].front().training_share(), advice.by_steps[i - 1].front().training_share());
    }
  }
}

TEST(Advise, WhatIsWellStaysAsItIs) {
  AdviceQuestion question = hospital();
  question.local_steps = 500;
  const Advice advice = advise(question).value();
  EXPECT_EQ(advice.chosen.codec, "fp32");
  EXPECT_EQ(advice.chosen.local_steps, 500U);
}

TEST(Advise, VeryThinLinesSaySo) {
  AdviceQuestion question = hospital();
  question.up_bytes_per_s = 50e3;
  question.down_bytes_per_s = 25e6;
  question.step_s = 0.2;
  const Advice advice = advise(question).value();
  EXPECT_THAT(advice.chosen.codec, ::testing::StartsWith("topk"));
  EXPECT_THAT(advice.why, ::testing::HasSubstr("accuracy"));
}

TEST(Advise, RatesAreBitsOrBytesASecond) {
  EXPECT_DOUBLE_EQ(parse_rate("50mbit").value(), 6.25e6);
  EXPECT_DOUBLE_EQ(parse_rate("1.5gbit").value(), 187.5e6);
  EXPECT_DOUBLE_EQ(parse_rate("6MB").value(), 6e6);
  for (const char* wrong : {"", "50", "mbit", "-1mbit", "0mbit", "5 mbit", "5mbits"}) {
    EXPECT_FALSE(parse_rate(wrong).ok()) << wrong;
  }
}

// A matrix of 1,000 rows and 500 columns: 2 columns and 2 rows go up, the columns' mean comes down, and the rows that
// the next round begins with, 4 bytes each.
TEST(Advise, TwoPassesSendFactorsAndTakeTheirMeansDown) {
  AdviceQuestion question = hospital();
  question.codec = "powersgd:rank=2";
  question.values = 500'000;
  const auto unknown = advise(question);
  ASSERT_FALSE(unknown.ok());
  EXPECT_THAT(unknown.error().message, ::testing::HasSubstr("name the model's file in the plan"));
  question.schema = round::Schema::make({{"w", round::DType::kF32, {1'000, 500}}}).value();
  const Advice advice = advise(question).value();
  EXPECT_NEAR(advice.planned.up_s, 4.0 * (2'000 + 1'000) / 6.25e6, 1e-9);
  EXPECT_NEAR(advice.planned.down_s, 4.0 * (500'000 + 2'000 + 1'000) / 25e6, 1e-4 / 25);
  question.codec = "fp32";
  EXPECT_GT(advice.planned.other_s, fluvial::cli::advise(question)->planned.other_s) << "one turn more";
}

TEST(Advise, OfWindowsItSaysWhatARoundIs) {
  AdviceQuestion question = hospital();
  EXPECT_EQ(advise(question)->note, "");
  question.is_async = true;
  EXPECT_THAT(advise(question)->note, ::testing::HasSubstr("Windows wait for no site"));
}

}  // namespace
}  // namespace fluvial::cli
