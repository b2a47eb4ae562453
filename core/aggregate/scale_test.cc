#include "core/aggregate/scale.h"

#include <gtest/gtest.h>

#include <bit>
#include <cmath>

#include "core/aggregate/accumulator.h"
#include "core/aggregate/probe.h"
#include "core/base/rng.h"
#include "core/round/contribution.h"
#include "core/round/probe.h"
#include "kernels/fixed.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::aggregate {
namespace {

round::Plan plan_of(double value_abs_max, std::uint32_t fraction_bits = 40) {
  round::Plan plan;
  plan.value_abs_max = value_abs_max;
  plan.fraction_bits = fraction_bits;
  return plan;
}

TEST(Scale, IsThatOfTheValuesWhenTheyAreLarge) {
  EXPECT_EQ(scale_for(plan_of(1024), 4'000'000).value(), 30);
  EXPECT_EQ(scale_for(plan_of(1024), 10'000).value(), 38);
  EXPECT_EQ(scale_for(plan_of(1024, 20), 10'000).value(), 20);
}

TEST(Scale, LeavesRoomForTheProbeHoweverSmallTheValuesAre) {
  const std::uint32_t weight = 5'000'000;
  for (const double value_abs_max : {0.001, 0.1, 0.5, 1.0}) {
    const int scale = scale_for(plan_of(value_abs_max), weight).value();
    EXPECT_EQ(scale, 39) << value_abs_max;  // 62 - ceil(log2(5'000'000))
    Probe fits(scale);
    EXPECT_TRUE(fits.add(SiteId(1), round::probe_bytes(), weight).ok());
    Probe narrow(scale + 1);
    EXPECT_FALSE(narrow.add(SiteId(1), round::probe_bytes(), weight).ok());
  }
}

TEST(Scale, HasRoomForExactlyWhatItWasMadeFor) {
  Rng rng(1);
  for (int i = 0; i < 2'000; ++i) {
    const double value_abs_max = std::ldexp(1.0 + rng.uniform(), static_cast<int>(rng.below(40)) - 10);
    const std::uint64_t weight_sum = 1 + rng.below(std::uint64_t{1} << (1 + rng.below(30)));
    const Result<int> scale = scale_for(plan_of(value_abs_max, 60), weight_sum);
    if (!scale.ok()) continue;
    EXPECT_TRUE(has_room(value_abs_max, *scale, weight_sum));
    if (*scale < 60) EXPECT_FALSE(has_room(value_abs_max, *scale + 1, weight_sum));
    EXPECT_FALSE(has_room(value_abs_max, *scale, kernels::kWeightSumEnd));
  }
}

TEST(Scale, NoRoomIsAnError) {
  EXPECT_EQ(scale_for(plan_of(1e9), std::uint64_t{1} << 40).error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(scale_for(plan_of(1), 0).ok());
  EXPECT_FALSE(scale_for(plan_of(1), kernels::kWeightSumEnd).ok());
}

round::Plan ring_plan(std::string codec) {
  round::Plan plan;
  plan.codec = std::move(codec);
  return plan;
}

// Whole numbers of steps at the scale, whatever the weights are: so partials are as narrow as code and weight.
TEST(Scale, OfRingIsThatOfItsSteps) {
  for (const std::uint64_t weight_sum : {std::uint64_t{1}, std::uint64_t{16}, std::uint64_t{4'000'000}}) {
    EXPECT_EQ(scale_for(ring_plan("ring:max=0.05"), weight_sum).value(), 11);
    EXPECT_EQ(scale_for(ring_plan("ring:bits=16,max=0.05"), weight_sum).value(), 19);
    EXPECT_EQ(scale_for(ring_plan("ring:max=1000"), weight_sum).value(), 0) << "the probe is 1";
  }
  EXPECT_FALSE(whole_scale(ring_plan("int8")).has_value());
  EXPECT_FALSE(whole_scale(ring_plan("fp32")).has_value());
}

TEST(Scale, OfVotesIsOne) {
  EXPECT_EQ(scale_for(ring_plan("sign:mode=vote"), 1'000).value(), 0);
  EXPECT_FALSE(whole_scale(ring_plan("sign")).has_value()) << "each block of each site has a scale of its own";
  round::Plan plan = ring_plan("sign:mode=vote");
  plan.late = "next";
  EXPECT_EQ(scale_for(plan, 1'000).value(), 9);
}

// What is old counts in 512ths of its weight, and nothing of it is rounded either.
TEST(Scale, OfRingHasRoomForTheFactorsOfOldUpdates) {
  round::Plan plan = ring_plan("ring:max=0.05");
  plan.late = "next";
  EXPECT_EQ(scale_for(plan, 1'000).value(), 20);
  plan = ring_plan("ring:max=1000");
  round::set_mode("async", &plan);
  EXPECT_EQ(scale_for(plan, 1'000).value(), 9);
}

// Through regions, with old updates and shares: what is committed is, bit for bit, what a plain sum of the values that
// were sent commits at the usual scale, and each partial takes the bytes of code, weight and factor alone.
TEST(Scale, OfRingCommitsWhatAPlainSumOfTheSameValuesDoes) {
  namespace test_values = kernels::test_values;
  constexpr kernels::ChunkLayout kLayout{.value_count = 3'000, .chunk_values = 1'000};
  constexpr std::size_t kSites = 12;
  const std::uint32_t factors[] = {512, 362, 296};
  round::Plan plan = ring_plan("ring:bits=8,max=0.05");
  plan.late = "next";
  const int scale = scale_for(plan, 100'000).value();
  const auto ring = test_values::codec_of(plan.codec);
  const auto plain = test_values::codec_of("fp32");
  Accumulator region(kLayout, 0, scale), root(kLayout, 0, scale), flat(kLayout, 0, 40);
  std::uint64_t total = 0, terms_most = 0;
  for (std::size_t site = 0; site < kSites; ++site) {
    const round::Contribution from{.site = SiteId(static_cast<std::uint32_t>(site + 1)),
                                   .weight = 1 + 7 * site,
                                   .base = ModelVersion(10 - site % 3),
                                   .admitted = ModelVersion(10),
                                   .share = site % 4 == 0 ? 100U : round::kWholeFactor};
    const round::Share share = round::share_of(from, factors).value();
    total += from.weight;
    terms_most += 127 * std::uint64_t{share.weight} << (round::kFactorBits - share.down_bits);
    const auto vector = test_values::normals(kLayout.value_count, site, 0.03F);
    const auto encoded = test_values::encode(*ring, vector, kLayout.chunk_values);
    const auto sent = test_values::decode(*ring, encoded);
    const auto whole = test_values::encode(*plain, sent, kLayout.chunk_values);
    for (std::size_t i = 0; i < kLayout.chunk_count(); ++i) {
      ASSERT_TRUE(region.add_chunk(*ring, i, encoded.chunks[i].span(), share.weight, share.down_bits).ok());
      ASSERT_TRUE(flat.add_chunk(*plain, i, whole.chunks[i].span(), share.weight, share.down_bits).ok());
    }
    if (site % 3 != 2) continue;
    for (std::size_t i = 0; i < kLayout.chunk_count(); ++i) {
      const Buffer packed = region.pack_chunk(i);
      EXPECT_LE(packed.size(), 16 + kLayout.chunk_values * (std::bit_width(terms_most) / 8 + 1));
      ASSERT_TRUE(root.merge_chunk(i, packed.span()).ok());
    }
    region.reset(scale);
  }
  std::vector<float> mean(kLayout.value_count), expected(kLayout.value_count);
  ASSERT_TRUE(root.mean(0, total, mean).ok());
  ASSERT_TRUE(flat.mean(0, total, expected).ok());
  EXPECT_EQ(test_values::bits_of(mean), test_values::bits_of(expected));
}

TEST(Scale, WithoutRoomForRingsStepsSaysWhatToDo) {
  const Result<int> none = scale_for(ring_plan("ring:bits=24,max=0.05"), 4'000'000'000);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(none.error().message,
            "no room for an exact sum in ring:bits=24,max=0.05's steps of 2^-27: lower the sites' maximum weights or "
            "value_abs_max, or give ring fewer bits or a larger max");
  round::Plan plan = ring_plan("ring:bits=24,max=0.05");
  plan.value_abs_max = 1;
  EXPECT_EQ(scale_for(plan, 4'000'000'000).value(), 27);
  EXPECT_FALSE(scale_for(plan, 0).ok());
}

}  // namespace
}  // namespace fluvial::aggregate
