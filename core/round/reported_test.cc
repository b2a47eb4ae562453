#include "core/round/reported.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

namespace fluvial::round {
namespace {

Contribution contribution(std::uint32_t site, std::uint64_t weight, Metrics metrics) {
  Contribution entry;
  entry.site = SiteId(site);
  entry.weight = weight;
  entry.digest[0] = std::byte{7};
  entry.probe = 11;
  entry.submission = 3;
  entry.signature = Signature{};
  entry.metrics = std::move(metrics);
  return entry;
}

ContributorSet two_sites() {
  ContributorSet set;
  EXPECT_TRUE(set.add(contribution(1, 30, {{"loss", 0.5}, {"seen", 4}})).ok());
  EXPECT_TRUE(set.add(contribution(2, 10, {{"loss", 0.1}})).ok());
  return set;
}

TEST(Reported, MeansAreByWeightOverThoseThatReport) {
  EXPECT_EQ(mean_metrics(two_sites()), (Metrics{{"loss", 0.4}, {"seen", 4}}));
  EXPECT_EQ(mean_metrics({}), Metrics());
}

TEST(Reported, WhatIsNotFiniteIsInNoMean) {
  constexpr double kInfinity = std::numeric_limits<double>::infinity();
  for (const double bad : {std::nan(""), kInfinity, -kInfinity, 1.7e308, -1.1e100}) {
    EXPECT_FALSE(counts(bad));
    ContributorSet set = two_sites();
    ASSERT_TRUE(set.add(contribution(3, 60, {{"loss", bad}, {"mine", bad}})).ok());
    EXPECT_EQ(mean_metrics(set), (Metrics{{"loss", 0.4}, {"seen", 4}})) << bad;
  }
  ContributorSet great;
  for (std::uint32_t site = 1; site <= 3; ++site) {
    ASSERT_TRUE(great.add(contribution(site, kWeightLimit - 1, {{"loss", kMetricAbsMax}})).ok());
  }
  EXPECT_DOUBLE_EQ(mean_metrics(great).at("loss"), kMetricAbsMax) << "no sum overflows";
}

TEST(Reported, SitesKeepTheirOwnWhereThePlanAllows) {
  ContributorSet set = two_sites();
  EXPECT_EQ(settle_metrics({}, set), mean_metrics(two_sites()));
  EXPECT_EQ(set, two_sites());
}

TEST(Reported, OtherwiseTheMeansAloneAreLeft) {
  Plan plan;
  plan.metrics_by_site = false;
  ContributorSet set = two_sites();
  EXPECT_EQ(settle_metrics(plan, set), mean_metrics(two_sites()));
  EXPECT_EQ(set.total_weight(), 40U);
  const ContributorSet before = two_sites();
  for (const auto& [site, entry] : before.entries()) {  // all that is signed or counted stays
    Contribution without = entry;
    without.metrics.clear();
    EXPECT_EQ(*set.find(site), without);
  }
}

}  // namespace
}  // namespace fluvial::round
