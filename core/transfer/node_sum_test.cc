#include "core/transfer/node_sum.h"

#include <algorithm>
#include <cstring>

#include "core/transfer/test_support.h"

namespace fluvial::transfer {
namespace {

constexpr SumShape kShape{{kTestValues, kTestChunkValues}, 0, kTestScale};

class NodeSumTest : public TransferTest {
 protected:
  NodeSumTest() { sum_.reset(kShape); }
  static std::vector<std::int64_t> integers_of(const NodeSum& sum) {
    const auto all = sum.accumulator().sum();
    return {all.begin(), all.end()};
  }
  // As it would arrive at the parent.
  StagedArrival partial_of(const NodeSum& sum, const round::ContributorSet& contributors) {
    StagedArrival partial;
    partial.child = NodeId(2);
    partial.kind = PartialArrival{1};
    partial.what.contributors = contributors;
    partial.chunks.emplace(budget_, files_, "/spill", 1 << 20);
    for (std::size_t i = 0; i < 3; ++i) EXPECT_TRUE(partial.chunks->append(sum.pack_chunk(i)).ok());
    return partial;
  }
  Serial serial_;
  NodeSum sum_;
};

TEST_F(NodeSumTest, HoldsTheExactWeightedSumAndItsProbes) {
  const auto probes = sum_.add(arrival(test_head(3), test_values(1)), serial_);
  ASSERT_TRUE(probes.ok());
  EXPECT_TRUE(round::check_probe(*probes, kTestScale).ok());
  for (std::size_t i = 0; i < kTestValues; ++i) {
    const double expected = (1 + static_cast<double>(i) / 16) * 3 * (1 << kTestScale);
    ASSERT_EQ(integers_of(sum_)[i], static_cast<std::int64_t>(expected)) << i;
  }
}

TEST_F(NodeSumTest, IsMadeAgainWithoutOneFromWhatWasRetained) {
  const StagedArrival a = arrival(test_head(3), test_values(1));
  const StagedArrival b = arrival(test_head(4), test_values(2));
  NodeSum only_b;
  only_b.reset(kShape);
  ASSERT_TRUE(only_b.add(b, serial_).ok());

  ASSERT_TRUE(sum_.add(a, serial_).ok());
  ASSERT_TRUE(sum_.add(b, serial_).ok());
  sum_.reset(kShape);
  const auto again = sum_.add(b, serial_);
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(integers_of(sum_), integers_of(only_b));
  EXPECT_TRUE(round::check_probe(*again, kTestScale).ok());
}

TEST_F(NodeSumTest, TheProbeTellsWhatWasAddedTwice) {
  const StagedArrival a = arrival(test_head(3), test_values(1));
  ASSERT_TRUE(sum_.add(a, serial_).ok());
  const auto twice = sum_.add(a, serial_);
  ASSERT_TRUE(twice.ok());
  EXPECT_EQ(round::check_probe(*twice, kTestScale).error().code, Code::kDataLoss);
}

// The sum is made from what the site sent, not from what the contributor set says.
TEST_F(NodeSumTest, TheProbeIsTheSitesAndTellsAnotherWeight) {
  StagedArrival half = arrival(test_head(4), test_values(1));
  const float value = 0.5F;
  std::memcpy(std::get<UpdateArrival>(half.kind).probe.data(), &value, sizeof(value));
  const auto added = sum_.add(half, serial_);
  ASSERT_TRUE(added.ok());
  EXPECT_EQ(added->find(SiteId(4))->probe, 2 << kTestScale);
  EXPECT_EQ(sum_.check_probes(*added).error().code, Code::kDataLoss);
}

TEST_F(NodeSumTest, HoldsExactlyItsContributors) {
  const auto a = sum_.add(arrival(test_head(3), test_values(1)), serial_);
  const auto b = sum_.add(arrival(test_head(4), test_values(2)), serial_);
  ASSERT_TRUE(a.ok() && b.ok());
  round::ContributorSet both = *a;
  EXPECT_EQ(sum_.check_probes(both).error().code, Code::kDataLoss) << "site 4 is in the sum, too";
  ASSERT_TRUE(both.merge(*b).ok());
  EXPECT_TRUE(sum_.check_probes(both).ok());
  round::Contribution stranger = *b->find(SiteId(4));
  stranger.site = SiteId(5);
  ASSERT_TRUE(both.add(stranger).ok());
  EXPECT_EQ(sum_.check_probes(both).error().code, Code::kDataLoss) << "and site 5 is not";
}

TEST_F(NodeSumTest, APartialOfAPartMergesToTheSameBits) {
  const StagedArrival a = arrival(test_head(3), test_values(1));
  const StagedArrival b = arrival(test_head(4), test_values(2));
  NodeSum below;
  below.reset(kShape);
  const auto contributors = below.add(a, serial_);
  ASSERT_TRUE(sum_.add(b, serial_).ok());
  const auto merged = sum_.add(partial_of(below, *contributors), serial_);
  ASSERT_TRUE(merged.ok());
  EXPECT_TRUE(round::check_probe(*merged, kTestScale).ok());
  NodeSum flat;
  flat.reset(kShape);
  ASSERT_TRUE(flat.add(a, serial_).ok() && flat.add(b, serial_).ok());
  EXPECT_EQ(integers_of(sum_), integers_of(flat));
}

TEST_F(NodeSumTest, WhatWasSpilledIsSummedAlikeAndADiskThatFailsSaysSo) {
  ASSERT_TRUE(sum_.add(arrival(test_head(3), test_values(1)), serial_).ok());
  const std::vector<std::int64_t> expected = integers_of(sum_);
  store::StagingBudget none(0);
  staging_.budget = &none;
  const StagedArrival spilled = arrival(test_head(3), test_values(1));
  EXPECT_EQ(spilled.chunks->spilled_bytes(), kTestValues * sizeof(float));
  sum_.reset(kShape);
  ASSERT_TRUE(sum_.add(spilled, serial_).ok());
  EXPECT_EQ(integers_of(sum_), expected);
  files_.fail_at(0, store::Fault::kIo);
  EXPECT_EQ(sum_.add(spilled, serial_).error().code, Code::kUnavailable);
}

// The parent changed the round's terms while the update was on its way.
TEST_F(NodeSumTest, WhatCameForAnotherShapeIsNotAdded) {
  const StagedArrival one = arrival(test_head(3), test_values(1));
  const kernels::ChunkLayout layout = kShape.layout;
  for (const SumShape& shape :
       {SumShape{{layout.value_count, layout.chunk_values / 2}, 0, kTestScale},
        SumShape{{layout.value_count * 4, layout.chunk_values}, 0, kTestScale},
        SumShape{{layout.chunk_values, layout.chunk_values}, 0, kTestScale},
        SumShape{{layout.value_count + 1, layout.chunk_values}, 0, kTestScale}, SumShape{layout, 2, kTestScale}}) {
    sum_.reset(shape);
    const auto added = sum_.add(one, serial_);
    ASSERT_FALSE(added.ok());
    EXPECT_EQ(added.error().code, Code::kUnavailable) << "not the sender's fault";
  }
  sum_.reset(kShape);
  EXPECT_TRUE(sum_.add(one, serial_).ok());
}

TEST_F(NodeSumTest, IntegersBecomeTheirMaximum) {
  SumShape shape = kShape;
  shape.integer_count = 2;
  sum_.reset(shape);
  StagedArrival a = arrival(test_head(3), test_values(1));
  StagedArrival b = arrival(test_head(4), test_values(2));
  a.integers = {5, -7};
  b.integers = {4, -6};
  ASSERT_TRUE(sum_.add(a, serial_).ok() && sum_.add(b, serial_).ok());
  const std::span<const std::int64_t> most = sum_.accumulator().integers();
  EXPECT_EQ(std::vector(most.begin(), most.end()), (std::vector<std::int64_t>{5, -6}));
}

}  // namespace
}  // namespace fluvial::transfer
