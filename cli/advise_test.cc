#include "cli/advise.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "cli/format.h"

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

// The mildest among equals: int8 needs more local steps, topk no fewer.
TEST(Advise, AHarsherCodecIsChosenOnlyWhereItSavesSteps) {
  AdviceQuestion question{.values = 7'000'000'000,
                          .sites = 8,
                          .up_bytes_per_s = 125e6,
                          .down_bytes_per_s = 125e6,
                          .rtt_s = 0.04,
                          .step_s = 1};
  EXPECT_EQ(advise(question)->chosen.codec, "int4");
  EXPECT_EQ(advise(question)->chosen.down, "delta:int8");
  EXPECT_EQ(advise(question)->chosen.local_steps, 1000U);
  question.sites = 1;
  EXPECT_EQ(advise(question)->chosen.codec, "int8") << "as few steps as int4";
}

struct Candidate {
  std::size_t severity;
  std::string codec;
  std::string down;
};

// By trying: with which number of local steps is training most of a round?
class AdviceOracle {
 public:
  explicit AdviceOracle(AdviceQuestion question) : question_(std::move(question)) {
    const std::vector<std::pair<std::size_t, std::string>> codecs = {
        {0, "fp32"}, {0, "bf16"}, {0, "int8"}, {1, "int4"}, {2, "topk:ratio=0.05"}, {3, "topk:ratio=0.01"}};
    for (const std::string down : {"fp32", "delta:int8"}) {
      for (const auto& [severity, codec] : codecs) {
        if (severity == 0) candidates_.push_back({severity, codec, down});
      }
    }
    for (const auto& [severity, codec] : codecs) {
      if (severity == 0) continue;
      for (const std::string down : {"fp32", "delta:int8"}) candidates_.push_back({severity, codec, down});
    }
  }
  double share(const Candidate& one, std::uint64_t steps) const {
    AdviceQuestion question = question_;
    question.codec = one.codec;
    question.down = one.down;
    question.local_steps = steps;
    return advise(question)->planned.training_share();
  }
  bool reaches(const Candidate& one, std::uint64_t steps) const { return share(one, steps) >= 0.8; }
  const std::vector<Candidate>& candidates() const { return candidates_; }

 private:
  AdviceQuestion question_;
  std::vector<Candidate> candidates_;  // the mildest first
};

TEST(Advise, TheChoiceIsTheMildestThatReachesTheMark) {
  int harsh = 0, none = 0;
  for (const std::uint64_t values : {1'000'000ULL, 25'000'000ULL, 7'000'000'000ULL}) {
    for (const double up : {50e3, 1e6, 125e6}) {
      for (const std::uint64_t sites : {1U, 64U}) {
        for (const double step_s : {0.1, 2.0, 30.0}) {
          SCOPED_TRACE(testing::Message() << values << " values, " << up << " B/s, " << sites << " sites, " << step_s);
          const AdviceQuestion question{.values = values,
                                        .sites = sites,
                                        .up_bytes_per_s = up,
                                        .down_bytes_per_s = 4 * up,
                                        .rtt_s = 0.04,
                                        .step_s = step_s};
          const AdviceOracle oracle(question);
          const AdvisedRound chosen = advise(question)->chosen;
          const auto& all = oracle.candidates();
          const auto is_chosen = [&](const Candidate& one) {
            return one.codec == chosen.codec && one.down == chosen.down;
          };
          const auto at = std::ranges::find_if(all, is_chosen);
          ASSERT_NE(at, all.end());
          const bool possible = std::ranges::any_of(all, [&](const auto& one) { return oracle.reaches(one, 1000); });
          EXPECT_EQ(chosen.training_share() >= 0.8, possible);
          for (auto milder = all.begin(); milder != at; ++milder) {
            if (possible) {
              EXPECT_FALSE(oracle.reaches(*milder, chosen.local_steps)) << milder->codec << " does as well";
            } else {
              EXPECT_LT(oracle.share(*milder, 1000), chosen.training_share()) << milder->codec;
            }
            if (milder->severity < at->severity) {
              EXPECT_FALSE(oracle.reaches(*milder, 100)) << "needs no harsher codec";
            }
          }
          harsh += at->severity > 0 ? 1 : 0;
          none += possible ? 0 : 1;
        }
      }
    }
  }
  EXPECT_GT(harsh, 3) << "the table has such cases";
  EXPECT_GT(none, 3);
}

TEST(Advise, OverlapAndMemoryAreNamed) {
  AdviceQuestion question = hospital();
  question.optimizer_vectors = 2;
  const Advice advice = fluvial::cli::advise(question).value();
  EXPECT_DOUBLE_EQ(advice.chosen.overlapped_s(), advice.chosen.train_s) << "60 s of training hide the rest";
  EXPECT_GT(advice.planned.overlapped_s(), 20) << "1.2 s do not";
  EXPECT_THAT(advice.overlap, ::testing::HasSubstr("overlap=True"));
  // (12 + 8 + 2 * 8) bytes of 25 million values and 64 MB; without the state at an aggregator.
  EXPECT_THAT(advice.memory, ::testing::HasSubstr(format_bytes(36 * 25e6 + 64e6) + " at the coordinator"));
  EXPECT_THAT(advice.memory, ::testing::HasSubstr(format_bytes(20 * 25e6 + 64e6) + " at an aggregator"));
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
