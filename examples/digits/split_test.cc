#include "examples/digits/split.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

namespace fluvial::digits {
namespace {

Examples images(std::size_t count) {
  Examples examples{.inputs = 1, .pixels = std::vector<float>(count), .labels = {}};
  for (std::size_t i = 0; i < count; ++i) examples.labels.push_back(static_cast<std::uint8_t>(i * 7 % kClasses));
  return examples;
}

TEST(Split, GivesEachImageToOneSite) {
  const Examples train = images(1437);
  for (const std::size_t sites : {1, 2, 4, 30, 71}) {
    for (const double alpha : {1e-3, 0.05, 0.3, 1.0, 1e6}) {
      for (const std::uint64_t seed : {0, 1, 2, 3}) {
        const auto split = split_over_sites(train, {.sites = sites, .alpha = alpha, .seed = seed});
        ASSERT_TRUE(split.ok()) << split.error().message;
        ASSERT_EQ(split->size(), sites);
        std::vector<std::uint32_t> all;
        for (const auto& site : *split) {
          EXPECT_GE(site.size(), 20u);
          EXPECT_TRUE(std::is_sorted(site.begin(), site.end()));
          all.insert(all.end(), site.begin(), site.end());
        }
        std::sort(all.begin(), all.end());
        std::vector<std::uint32_t> expected(train.count());
        std::iota(expected.begin(), expected.end(), 0);
        EXPECT_EQ(all, expected);
      }
    }
  }
}

TEST(Split, IsAFunctionOfItsArguments) {
  const Examples train = images(500);
  const auto split = [&](std::uint64_t seed) { return split_over_sites(train, {.sites = 4, .seed = seed}).value(); };
  EXPECT_EQ(split(1), split(1));
  EXPECT_NE(split(1), split(2));
}

TEST(Split, AlphaSaysHowAlikeTheSitesAre) {
  const Examples train = images(2000);
  const auto digits_a_site = [&](double alpha) {  // that make up more than a hundredth of it, on average
    const auto split = split_over_sites(train, {.sites = 5, .alpha = alpha, .seed = 1}).value();
    double sum = 0;
    for (const auto& site : split) {
      std::vector<std::size_t> counts(kClasses);
      for (const std::uint32_t index : site) ++counts[train.labels[index]];
      sum += static_cast<double>(
          std::count_if(counts.begin(), counts.end(), [&](auto n) { return n * 100 > site.size(); }));
    }
    return sum / 5;
  };
  EXPECT_EQ(digits_a_site(1000), 10);
  EXPECT_LT(digits_a_site(0.1), 6);
}

TEST(Split, RefusesWhatCannotBe) {
  const Examples train = images(100);
  for (const SplitOptions& bad :
       {SplitOptions{.sites = 0}, SplitOptions{.sites = 6}, SplitOptions{.alpha = 0}, SplitOptions{.alpha = -1},
        SplitOptions{.alpha = 1e7}, SplitOptions{.alpha = std::nan("")}}) {
    EXPECT_EQ(split_over_sites(train, bad).error().code, Code::kInvalidArgument);
  }
}

TEST(Dirichlet, SharesSumToOneAndHaveTheRightMean) {
  for (const double alpha : {1e-3, 0.3, 5.0}) {
    std::vector<double> mean(4);
    for (std::uint64_t seed = 0; seed < 4000; ++seed) {
      const std::vector<double> shares = draw_dirichlet(4, alpha, seed);
      EXPECT_NEAR(std::accumulate(shares.begin(), shares.end(), 0.0), 1, 1e-12);
      for (std::size_t i = 0; i < 4; ++i) mean[i] += shares[i] / 4000;
    }
    for (const double share : mean) EXPECT_NEAR(share, 0.25, 0.03);
  }
}

}  // namespace
}  // namespace fluvial::digits
