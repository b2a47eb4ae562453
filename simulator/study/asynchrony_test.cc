// Small federations whose outcome is known, whatever the figures of a large one are.
#include "simulator/study/asynchrony.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <string_view>

#include "simulator/study/quadratic.h"

namespace fluvial::simulator {
namespace {

constexpr std::uint64_t kSeed = 1;

// Four sites below two aggregators; the second and the fourth take four times as long as the others.
StudyFederation federation() {
  StudyFederation federation;
  federation.sites = 4;
  federation.speeds = {.slow_one_in = 2, .slow_factor = 4};
  federation.training = std::chrono::seconds(5);
  federation.lasts = std::chrono::minutes(5);
  return federation;
}

Mode mode_named(std::string_view beginning) {
  for (Mode& mode : modes_of(federation())) {
    if (mode.name.starts_with(beginning)) return std::move(mode);
  }
  ADD_FAILURE() << beginning;
  return {};
}

BiasFigures bias(std::string_view mode) {
  const Result<BiasFigures> figures = measure_bias(federation(), mode_named(mode), kSeed);
  EXPECT_TRUE(figures.ok()) << figures.error().message;
  return figures.value();
}

TrainingFigures training(std::string_view mode) {
  StudyFederation shorter = federation();
  shorter.lasts = std::chrono::minutes(2);
  const Result<TrainingFigures> figures = measure_training(shorter, mode_named(mode), kSeed, 0.6);
  EXPECT_TRUE(figures.ok()) << figures.error().message;
  return figures.value();
}

TEST(Bias, RoundsThatWaitForAllEndAtTheOptimum) {
  const BiasFigures figures = bias("rounds, all awaited");
  EXPECT_LT(figures.to_optimum, 0.01 * figures.apart);
  EXPECT_EQ(figures.slow_part, 0.5);
  EXPECT_EQ(figures.staleness, 0);
}

TEST(Bias, RoundsThatCloseWithoutTheSlowEndAtTheMeanOfTheFast) {
  const BiasFigures figures = bias("rounds");
  EXPECT_EQ(figures.slow_part, 0) << "no slow site is in by the deadline";
  EXPECT_LT(figures.to_shares, 1e-3 * figures.apart);
  EXPECT_GT(figures.pull, 1) << "farther than the rates of all predict";
}

TEST(Bias, WindowsArePulledToTheFastAsFarAsWhatCountedPredicts) {
  const BiasFigures figures = bias("windows, goal 2");
  EXPECT_GT(figures.slow_part, 0) << "they count";
  EXPECT_LT(figures.slow_part, 0.4) << "less often than the fast";
  EXPECT_GT(figures.pull, 0.5);
  EXPECT_LT(figures.to_shares, figures.to_optimum / 3);
}

TEST(Bias, WindowsThatWaitForAllCommitTheModelsOfRoundsThatDo) {
  StudyFederation all = federation();
  all.lasts = std::chrono::minutes(2);
  all.plan = {"async.goal = 4", "deadlines.soft_ms = 60000", "deadlines.hard_ms = 60000"};
  Quadratic windows(kSeed, all.sites, all.speeds);
  Quadratic rounds(kSeed, all.sites, all.speeds);
  ASSERT_TRUE(train(all, mode_named("windows, goal 2"), kSeed, windows).ok());
  ASSERT_TRUE(train(all, mode_named("rounds, all awaited"), kSeed, rounds).ok());
  const std::size_t both = std::min(windows.commits().size(), rounds.commits().size());
  ASSERT_GT(both, 3u);
  for (std::size_t i = 0; i < both; ++i) EXPECT_EQ(windows.commits()[i].model, rounds.commits()[i].model) << i;
}

TEST(Training, WindowsAreSoonerAtTheSameLossThanRoundsThatWaitForAll) {
  const TrainingFigures patient = training("rounds, all awaited");
  const TrainingFigures windows = training("windows, goal 2");
  ASSERT_TRUE(patient.reached_s && windows.reached_s);
  EXPECT_LT(*windows.reached_s, *patient.reached_s);
  EXPECT_GT(windows.commits, patient.commits);
  EXPECT_EQ(windows.least_loss, patient.least_loss) << "the same data";
  EXPECT_GE(patient.end_loss, patient.least_loss);
}

TEST(Training, ASeedGivesTheSameModelsAtTheSameTimesAgain) {
  StudyFederation shorter = federation();
  shorter.lasts = std::chrono::minutes(1);
  Quadratic once(kSeed, shorter.sites, shorter.speeds);
  Quadratic again(kSeed, shorter.sites, shorter.speeds);
  ASSERT_TRUE(train(shorter, mode_named("windows, goal 2"), kSeed, once).ok());
  ASSERT_TRUE(train(shorter, mode_named("windows, goal 2"), kSeed, again).ok());
  ASSERT_EQ(once.commits().size(), again.commits().size());
  for (std::size_t i = 0; i < once.commits().size(); ++i) {
    EXPECT_EQ(once.commits()[i].at, again.commits()[i].at) << i;
    EXPECT_EQ(once.commits()[i].model, again.commits()[i].model) << i;
  }
}

// The updates grow beyond the plan's bounds, and sites refuse them. That is the training's fault, and nobody else's.
TEST(Training, WhatDivergesIsRefusedByItsOwnSites) {
  StudyFederation hasty = federation();
  hasty.plan = {"optimizer.learning_rate = 4"};
  Quadratic course(kSeed, hasty.sites, hasty.speeds);
  const Status trained = train(hasty, mode_named("windows, goal 1"), kSeed, course);
  EXPECT_TRUE(trained.ok()) << trained.error().message;
  const auto is_far = [](float value) { return std::abs(value) > 100; };  // the optimum is within 3 of 0
  EXPECT_TRUE(std::ranges::any_of(
      course.commits(), [&](const Commit& one) { return std::ranges::any_of(Quadratic::place(one.model), is_far); }));
}

TEST(Plans, AKeyIsInEveryModeAndOneOfWindowsInThoseAlone) {
  StudyFederation other = federation();
  other.plan = {"staleness_power = 7"};
  Quadratic course(kSeed, other.sites, other.speeds);
  for (const Mode& mode : modes_of(other)) {
    EXPECT_EQ(train(other, mode, kSeed, course).error().code, Code::kInvalidArgument) << mode.name;
  }
  other.plan = {"async.goal = 3"};
  EXPECT_TRUE(check_plans(other).ok()) << "it is no key of rounds, and in place of the windows' own";
  other.plan = {"async.goall = 3"};
  const Status wrong = check_plans(other);
  ASSERT_FALSE(wrong.ok());
  EXPECT_NE(wrong.error().message.find("async.goal"), std::string::npos) << wrong.error().message;
}

TEST(Spread, OfAnOddAndAnEvenNumber) {
  const Spread odd = spread_of({3, 1, 2});
  EXPECT_EQ(odd.median, 2);
  EXPECT_EQ(odd.least, 1);
  EXPECT_EQ(odd.greatest, 3);
  EXPECT_EQ(spread_of({4, 1, 2, 3}).median, 2.5);
}

}  // namespace
}  // namespace fluvial::simulator
