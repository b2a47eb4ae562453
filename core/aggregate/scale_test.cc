#include "core/aggregate/scale.h"

#include <gtest/gtest.h>

#include <cmath>

#include "core/aggregate/probe.h"
#include "core/base/rng.h"
#include "core/round/probe.h"
#include "kernels/fixed.h"

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
  EXPECT_FALSE(ring_scale(ring_plan("int8")).has_value());
  EXPECT_FALSE(ring_scale(ring_plan("fp32")).has_value());
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

TEST(Scale, WithoutRoomForRingsStepsSaysWhatToDo) {
  const Result<int> none = scale_for(ring_plan("ring:bits=24,max=0.05"), 4'000'000'000);
  ASSERT_FALSE(none.ok());
  EXPECT_EQ(none.error().code, Code::kFailedPrecondition);
  EXPECT_EQ(
      none.error().message,
      "no room for an exact sum in ring:bits=24,max=0.05's steps of 2^-27: lower value_abs_max or the sites' maximum "
      "weights, or give the codec fewer bits or a larger max");
  round::Plan plan = ring_plan("ring:bits=24,max=0.05");
  plan.value_abs_max = 1;
  EXPECT_EQ(scale_for(plan, 4'000'000'000).value(), 27);
  EXPECT_FALSE(scale_for(plan, 0).ok());
}

}  // namespace
}  // namespace fluvial::aggregate
