// The planner's figures for a federation where they can be worked out by hand.
#include "simulator/run/capacity.h"

#include <gtest/gtest.h>

#include <initializer_list>
#include <string>
#include <string_view>
#include <utility>

#include "simulator/roles/settle.h"

namespace fluvial::simulator {
namespace {

constexpr double kModelBytes = 4e6;

// Six sites below two aggregators, a model of a million values, and links that take most of the time.
constexpr std::string_view kByHand = R"(name = "by hand"
[tree]
aggregators = 2
sites = 3
[sites]
train_min_ms = 1000
train_max_ms = 1000
weight_min = 100
weight_max = 100
[workload]
sized = true
values = 1000000
tensors = 1
[plan]
rounds = 4
participants.min = 6
participants.quorum = 6
[links.site]
up_bytes_per_s = 1e6
down_bytes_per_s = 4e6
[links.aggregator]
up_bytes_per_s = 1e8
down_bytes_per_s = 1e8
[faults]
until_ms = 0
[limits]
progress_rounds = 0
)";

ScenarioFile scenario(const std::string& compute = "") {
  return ScenarioFile::parse(std::string(kByHand) + compute, "by-hand.toml").value();
}

using Change = std::pair<std::string_view, std::string_view>;  // a part of the text, and its replacement
ScenarioFile scenario_with(std::initializer_list<Change> changes) {
  std::string text(kByHand);
  for (const auto& [before, after] : changes) text.replace(text.find(before), before.size(), after);
  return ScenarioFile::parse(text, "by-hand.toml").value();
}

Capacity plan(const ScenarioFile& file) {
  const Result<SeedResult> result = run_seed(file, 1, settle(), 0);
  EXPECT_TRUE(result.ok() && result->violations.empty());
  return capacity_of(*result);
}

TEST(Planner, ARoundTakesWhatLinksAndTrainingTakeAndATierWhatItsMessagesHold) {
  const Capacity capacity = plan(scenario());
  EXPECT_EQ(capacity.rounds, 4u);
  EXPECT_EQ(capacity.participants, 6);
  EXPECT_EQ(capacity.stragglers, 0);
  const double bound = 1 + kModelBytes / 1e6;  // training, and the update on its way up
  EXPECT_GE(capacity.round_p50_s, bound);
  EXPECT_LE(capacity.round_p50_s, bound + kModelBytes / 4e6 + 0.5) << "the model on its way down, and the rest";
  ASSERT_EQ(capacity.tiers.size(), 2u);
  const Capacity::Tier& aggregators = capacity.tiers[0];
  const Capacity::Tier& sites = capacity.tiers[1];
  EXPECT_EQ(aggregators.total.hosts, 2u);
  EXPECT_EQ(sites.total.hosts, 6u);
  EXPECT_NEAR(sites.up_bytes_a_round, 6 * kModelBytes, 6 * kModelBytes * 0.002) << "fp32";
  // 0.1 * 300 * 2^40: 46 bits and a sign, in 6 bytes.
  EXPECT_NEAR(aggregators.up_bytes_a_round, 2 * 6e6, 2 * 6e6 * 0.004);
  // Five models in four rounds: the first one, and what each round made.
  EXPECT_NEAR(sites.down_bytes_a_round, 6 * kModelBytes * 5 / 4, 6 * kModelBytes * 0.01);
  EXPECT_NEAR(aggregators.down_bytes_a_round, 2 * kModelBytes * 5 / 4, 2 * kModelBytes * 0.01);
}

TEST(Planner, ASparseUpdateTakesWhatItsCodecMakesOfItAndASumOfThemMore) {
  const Capacity capacity = plan(scenario_with({{"rounds = 4", "rounds = 4\ncodec = \"topk:ratio=0.01\""}}));
  ASSERT_EQ(capacity.tiers.size(), 2u);
  const double entries = 0.01 * kModelBytes / 4;
  const double a_site = capacity.tiers[1].up_bytes_a_round / 6;
  EXPECT_GT(a_site, 5 * entries) << "an fp32 value and where it is, one in a hundred";
  EXPECT_LT(a_site, 5.5 * entries);
  const double an_aggregator = capacity.tiers[0].up_bytes_a_round / 2;
  EXPECT_GT(an_aggregator, 2 * 6 * entries) << "three sites send values of different places";
  EXPECT_LT(an_aggregator, 6e6 / 2);
}

TEST(Planner, WhatIsDamagedOnItsWayCountsNowhere) {
  EXPECT_EQ(plan(scenario_with({{"quorum = 6", "quorum = 1"}})).stragglers, 0);
  const Capacity capacity =
      plan(scenario_with({{"quorum = 6", "quorum = 1"}, {"until_ms = 0", "until_ms = 600000\nsites.corrupt = 0.4"}}));
  EXPECT_EQ(capacity.rounds, 4u);
  EXPECT_GE(capacity.stragglers, 1);
}

TEST(Planner, OnOneMachineTheWorkOfAllIsDividedAmongItsCores) {
  const std::string costs = "[compute]\nencode_ns = 1000\nmerge_ns = 0\nfinalise_ns = 0\n";  // a second for each site
  const double apart = plan(scenario(costs)).round_p50_s;
  const double on_two = plan(scenario(costs + "cores = 2\n")).round_p50_s;
  const double on_one = plan(scenario(costs + "cores = 1\n")).round_p50_s;
  EXPECT_NEAR(on_two - apart, 2, 0.1) << "six seconds of work on two cores instead of six";
  EXPECT_NEAR(on_one - apart, 5, 0.1);
}

TEST(Planner, BytesCostBothEndsTheirTime) {
  const double without = plan(scenario()).round_p50_s;
  const double with = plan(scenario("[compute]\nbyte_ns = 1000\ncores = 1\n")).round_p50_s;
  EXPECT_GE(with - without, 2 * 6 * kModelBytes * 1e-6) << "each update, sent and received, a microsecond a byte";
}

}  // namespace
}  // namespace fluvial::simulator
