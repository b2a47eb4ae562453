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

}  // namespace
}  // namespace fluvial::aggregate
