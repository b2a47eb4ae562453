#include "coordinator/logic/layout.h"

#include <gtest/gtest.h>

namespace fluvial::coordinator {
namespace {

LayoutNode aggregator(std::uint32_t id, std::string region) {
  return {NodeId(id), Role::kAggregator, std::move(region)};
}
LayoutNode site(std::uint32_t id, std::string region) { return {NodeId(id), Role::kSite, std::move(region)}; }

TEST(Layout, ARegionContainsItselfAndWhatIsInside) {
  EXPECT_TRUE(region_contains("eu", "eu/west"));
  EXPECT_TRUE(region_contains("eu", "eu"));
  EXPECT_TRUE(region_contains("", "eu"));
  EXPECT_FALSE(region_contains("eu", "europe"));
  EXPECT_FALSE(region_contains("eu/west", "eu"));
}

TEST(Layout, TheClosestRegionServes) {
  const std::vector<LayoutNode> all{aggregator(1, "eu"), aggregator(2, "eu/west"), aggregator(3, "us")};
  EXPECT_EQ(choose_parent(site(9, "eu/west/paris"), all, {}, {}), NodeId(2));
  EXPECT_EQ(choose_parent(site(9, "eu/east"), all, {}, {}), NodeId(1));
  EXPECT_EQ(choose_parent(site(9, "asia"), all, {}, {}), NodeId(0));
  EXPECT_EQ(choose_parent(all[1], all, {}, {}), NodeId(1)) << "an aggregator under an aggregator";
  EXPECT_EQ(choose_parent(all[0], all, {}, {}), NodeId(0));
}

TEST(Layout, EqualsShareTheLoadAndNobodyMovesWithoutNeed) {
  const std::vector<LayoutNode> all{aggregator(1, "eu"), aggregator(2, "eu")};
  EXPECT_EQ(choose_parent(site(9, "eu"), all, {}, {{NodeId(1), 3}, {NodeId(2), 1}}), NodeId(2));
  EXPECT_EQ(choose_parent(site(9, "eu"), all, NodeId(1), {{NodeId(1), 3}, {NodeId(2), 1}}), NodeId(1));
  EXPECT_EQ(choose_parent(all[0], all, {}, {}), NodeId(0)) << "never under a peer of its own region";
}

}  // namespace
}  // namespace fluvial::coordinator
