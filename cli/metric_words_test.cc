#include "cli/metric_words.h"

#include <gmock/gmock.h>

namespace fluvial::cli {
namespace {

using ::testing::ElementsAre;

json::value round_of(const char* text) { return parse_json(text, "a round").value(); }

std::vector<std::string> titles(const json::value& round) {
  const std::vector<MetricName> names = metric_names(round);
  std::vector<std::string> all;
  for (const MetricName& name : names) all.push_back(name.title(names));
  return all;
}

TEST(MetricWords, WhateverAWorkerReportsIsShownUnderItsOwnName) {
  const auto round = round_of(R"({"metrics":{"perplexity":31.5,"tokens":4096},"evaluation":{"bleu":27.25}})");
  EXPECT_THAT(titles(round), ElementsAre("perplexity", "bleu", "tokens"));
  EXPECT_EQ(metric_words(round, 3, Terminal::plain()), "perplexity   31.5  bleu  27.25  tokens   4096");
  EXPECT_EQ(metric_words(round, 1, Terminal::plain()), "perplexity   31.5");
}

TEST(MetricWords, LossAndTestAccuracyComeFirst) {
  const auto round = round_of(
      R"({"metrics":{"accuracy":0.91,"loss":0.5},"evaluation":{"a":1,"test_accuracy":0.973,"test_loss":0.1}})");
  EXPECT_THAT(titles(round), ElementsAre("loss", "test accuracy", "accuracy", "test loss", "a"));
  EXPECT_EQ(metric_words(round, 2, Terminal::plain()), "loss    0.5  test accuracy 97.3 %");
}

TEST(MetricWords, AnEvaluatedMetricOfASitesNameSaysSo) {
  const auto round = round_of(R"({"metrics":{"loss":0.5},"evaluation":{"loss":0.75}})");
  EXPECT_THAT(titles(round), ElementsAre("loss", "loss (evaluated)"));
}

TEST(MetricWords, WhoseMetricsAreInNoMeanIsSaid) {
  EXPECT_EQ(not_finite_words(round_of(R"({"metrics":{}})")), "");
  EXPECT_EQ(not_finite_words(round_of(R"({"not_finite":{}})")), "");
  EXPECT_EQ(not_finite_words(round_of(R"({"not_finite":{"auc":["b"],"loss":["a","b","c","d","e","f","g"]}})")),
            "auc of b; loss of a, b, c, d, e and 2 more");
}

TEST(MetricWords, AnAccuracyInPercentAlreadyStaysWhatItIs) {
  EXPECT_EQ(metric_value(round_of(R"({"metrics":{"accuracy":91.5}})"), {"accuracy", false}), "91.5");
  EXPECT_EQ(metric_value(round_of(R"({"metrics":{"accuracy":0.5}})"), {"accuracy", false}), "50.0 %");
}

TEST(MetricWords, NothingReportedIsNothingShown) {
  EXPECT_EQ(metric_words(round_of(R"({"metrics":{},"evaluation":{}})"), 3, Terminal::plain()), "");
  EXPECT_EQ(metric_words(round_of("1"), 3, Terminal::plain()), "");
  EXPECT_EQ(metric_value(round_of("{}"), {"loss", false}), "-");
}

}  // namespace
}  // namespace fluvial::cli
