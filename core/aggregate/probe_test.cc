#include "core/aggregate/probe.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>
#include <vector>

#include "kernels/fixed.h"

namespace fluvial::aggregate {
namespace {

using ::testing::HasSubstr;

constexpr SiteId kA{1};
constexpr SiteId kB{2};
constexpr SiteId kC{3};

TEST(Probe, HoldsTheWeightAtTheScaleOfEveryContributor) {
  Probe child(20);
  ASSERT_TRUE(child.add(kB, 7).ok());
  Probe root(20);
  ASSERT_TRUE(root.add(kA, 3).ok());
  ASSERT_TRUE(root.merge(child).ok());
  EXPECT_EQ(root.sums().at(kA), 3LL << 20);
  EXPECT_EQ(root.sums().at(kB), 7LL << 20);
  EXPECT_TRUE(root.check(std::vector<Contributor>{{kB, 7}, {kA, 3}}).ok());
}

TEST(Probe, FindsADoubleCountALossAndAStranger) {
  Probe probe(20);
  ASSERT_TRUE(probe.add(kA, 3).ok());
  ASSERT_TRUE(probe.add(kB, 7).ok());
  const auto error = [&](std::vector<Contributor> contributors) { return probe.check(contributors).error(); };
  EXPECT_THAT(error({{kA, 3}, {kB, 7}, {kC, 1}}).message, HasSubstr("site 3 holds 0, expected 1048576"));
  EXPECT_THAT(error({{kA, 3}}).message, HasSubstr("site 2 holds 7340032, expected 0"));
  EXPECT_THAT(error({{kA, 4}, {kB, 7}}).message, HasSubstr("site 1"));
  EXPECT_THAT(error({{kA, 3}, {kB, 7}, {kA, 3}}).message, HasSubstr("named twice"));
  ASSERT_TRUE(probe.add(kA, 3).ok());  // a second time
  EXPECT_EQ(error({{kA, 3}, {kB, 7}}).code, Code::kDataLoss);
  probe.reset(10);
  EXPECT_TRUE(probe.check({}).ok());
  EXPECT_TRUE(probe.sums().empty());
}

TEST(Probe, RefusesWeightsAndOverflow) {
  Probe probe(20);
  EXPECT_EQ(probe.add(kA, 0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(probe.add(kA, kernels::kWeightEnd).error().code, Code::kInvalidArgument);
  ASSERT_TRUE(probe.merge(kA, std::numeric_limits<std::int64_t>::max()).ok());
  EXPECT_EQ(probe.merge(kA, 1).error().code, Code::kDataLoss);
  EXPECT_EQ(probe.sums().at(kA), std::numeric_limits<std::int64_t>::max());
  Probe narrow(40);
  EXPECT_EQ(narrow.add(kA, 5'000'000).error().code, Code::kDataLoss) << "its scale has no room for it";
  EXPECT_TRUE(narrow.sums().empty());
}

}  // namespace
}  // namespace fluvial::aggregate
