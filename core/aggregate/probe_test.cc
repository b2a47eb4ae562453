#include "core/aggregate/probe.h"

#include <gtest/gtest.h>

#include <limits>

#include "core/round/probe.h"
#include "kernels/fixed.h"

namespace fluvial::aggregate {
namespace {

constexpr SiteId kA{1};
constexpr SiteId kB{2};

Status add(Probe& probe, SiteId site, std::uint32_t weight, float value = 1) {
  return probe.add(site, std::as_bytes(std::span(&value, 1)), weight);
}

TEST(Probe, HoldsTheWeightAtTheScaleOfEverySiteThatWasAdded) {
  Probe child(20);
  ASSERT_TRUE(child.add(kB, round::probe_bytes(), 7).ok());
  Probe root(20);
  ASSERT_TRUE(root.add(kA, round::probe_bytes(), 3).ok());
  ASSERT_TRUE(root.merge(kB, child.sums().at(kB)).ok());
  EXPECT_EQ(root.sums(), (std::map<SiteId, std::int64_t>{{kA, 3LL << 20}, {kB, 7LL << 20}}));
}

TEST(Probe, IsWhatTheSitesBytesSayAndNotWhatItsWeightPromises) {
  Probe probe(20);
  ASSERT_TRUE(add(probe, kA, 3, 0.5F).ok());
  EXPECT_EQ(probe.sums().at(kA), 3LL << 19);
  ASSERT_TRUE(add(probe, kA, 3, 0.5F).ok());
  EXPECT_EQ(probe.sums().at(kA), 3LL << 20) << "twice";
}

TEST(Probe, RefusesWhatIsNoTermAndWhatLeavesItsRoom) {
  Probe probe(40);
  EXPECT_EQ(add(probe, kA, 0).error().code, Code::kInvalidArgument);
  EXPECT_EQ(add(probe, kA, kernels::kWeightEnd).error().code, Code::kInvalidArgument);
  EXPECT_EQ(add(probe, kA, 5'000'000).error().code, Code::kDataLoss) << "beyond 2^62";
  EXPECT_EQ(add(probe, kA, 1, std::numeric_limits<float>::infinity()).error().code, Code::kDataLoss);
  EXPECT_EQ(probe.add(kA, {}, 1).error().code, Code::kDataLoss);
  EXPECT_TRUE(probe.sums().empty());
  ASSERT_TRUE(probe.merge(kA, std::numeric_limits<std::int64_t>::max()).ok());
  EXPECT_EQ(probe.merge(kA, 1).error().code, Code::kDataLoss);
  EXPECT_EQ(probe.sums().at(kA), std::numeric_limits<std::int64_t>::max());
}

}  // namespace
}  // namespace fluvial::aggregate
