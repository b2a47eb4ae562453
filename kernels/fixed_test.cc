#include "kernels/fixed.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <optional>

#include "kernels/ops/fixed.h"
#include "kernels/ops/mean.h"
#include "kernels/pieces.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

// The term of one value, by the arithmetic that the loops include; none beyond 2^62, or for NaN.
std::optional<std::int64_t> fixed_term(float value, std::uint32_t weight, int scale_bits) {
  const double term = ops::fixed_product(value, std::ldexp(static_cast<double>(weight), scale_bits));
  if (!(std::fabs(term) <= kSumMax)) return std::nullopt;
  return ops::to_fixed(term);
}

TEST(ScaleBits, FollowsTheFormula) {
  EXPECT_EQ(scale_bits(30, 1024, 1).value(), 30);
  EXPECT_EQ(scale_bits(60, 1024, 1).value(), 52);          // 62 - 10
  EXPECT_EQ(scale_bits(60, 1024, 1'000'000).value(), 32);  // 62 - 10 - 20
  EXPECT_EQ(scale_bits(60, 1024, 1 << 20).value(), 32);    // a power of two itself needs no further bit
  EXPECT_EQ(scale_bits(60, 1024, (1 << 20) + 1).value(), 31);
  EXPECT_EQ(scale_bits(60, 0x1p127, kWeightSumEnd - 1).value(), 62 - 180);
  EXPECT_EQ(scale_bits(128, 0x1p-120, 1).value(), 128);
  Rng rng(1);
  for (int i = 0; i < 1'000; ++i) {
    const double max_abs = std::ldexp(1.0 + rng.uniform(), static_cast<int>(rng.below(60)) - 30);
    const std::uint64_t weights = 1 + rng.below(std::uint64_t{1} << rng.below(53));
    const int fraction = static_cast<int>(rng.below(80)) - 10;
    EXPECT_EQ(scale_bits(fraction, max_abs, weights).value(), reference::scale_bits(fraction, max_abs, weights));
  }
}

TEST(ScaleBits, RefusesWhatIsOutOfRange) {
  for (const double max_abs : {0.0, -1.0, std::numeric_limits<double>::quiet_NaN(), HUGE_VAL, 0x1.1p127}) {
    EXPECT_EQ(scale_bits(30, max_abs, 1).error().code, Code::kInvalidArgument) << max_abs;
  }
  EXPECT_FALSE(scale_bits(30, 1, 0).ok());
  EXPECT_FALSE(scale_bits(30, 1, kWeightSumEnd).ok());
  EXPECT_FALSE(scale_bits(129, 1, 1).ok());
  EXPECT_FALSE(scale_bits(-129, 1, 1).ok());
}

// At the bound: the greatest value, the greatest weights, as many as the scale was made for.
TEST(ScaleBits, TheBoundLeavesRoomInInt64) {
  const int scale = scale_bits(128, 1024, std::uint64_t{4} * (kWeightEnd - 1)).value();
  std::int64_t sum = 0;
  for (int i = 0; i < 4; ++i)
    ASSERT_FALSE(__builtin_add_overflow(sum, fixed_term(1024.0F, kWeightEnd - 1, scale).value(), &sum));
  EXPECT_LE(sum, std::int64_t{1} << 62);
  EXPECT_GT(sum, std::int64_t{1} << 60);
}

TEST(FixedTerm, AgreesWithExactIntegerArithmetic) {
  Rng rng(2);
  const auto values = test_values::adversarial(20'000, 3, std::numeric_limits<float>::max());
  std::size_t compared = 0;
  for (const float value : values) {
    const auto weight = static_cast<std::uint32_t>(1 + rng.below(kWeightEnd - 1));
    const int scale = static_cast<int>(rng.below(257)) - 128;
    const auto expected = reference::fixed_term(static_cast<double>(value), weight, scale);
    const auto term = fixed_term(value, weight, scale);
    ASSERT_EQ(term.has_value(), expected.has_value()) << value << " " << weight << " " << scale;
    if (!expected) continue;
    ASSERT_EQ(*term, *expected) << value << " " << weight << " " << scale;
    ++compared;
  }
  EXPECT_GT(compared, 8'000U);
}

TEST(FixedTerm, RoundsHalfToEvenAtEveryMagnitude) {
  for (const auto& [value, expected] : {std::pair{0.5F, 0},
                                        {1.5F, 2},
                                        {2.5F, 2},
                                        {-0.5F, 0},
                                        {-1.5F, -2},
                                        {-2.5F, -2},
                                        {0x1.000002p-1F, 1},
                                        {-3.5F, -4}}) {
    EXPECT_EQ(fixed_term(value, 1, 0).value(), expected) << value;
  }
  // Odd multiples of one half just below 2^51 and 2^52, where the two ways of rounding meet.
  for (const double base : {0x1p50, 0x1p51, 0x1.8p51, 0x1p52 - 16}) {
    for (int half = -31; half < 31; half += 2) {
      const double term = base + half * 0.5;
      const auto down = static_cast<std::int64_t>(std::floor(term));
      const std::int64_t even = term == std::floor(term) ? down : down + (down & 1);
      EXPECT_EQ(ops::to_fixed(term), even) << term;
      EXPECT_EQ(ops::to_fixed(-term), -even) << term;
      if (std::fabs(term) < ops::kSmallTermLimit) {
        EXPECT_EQ(ops::to_fixed_small(term), even) << term;
        EXPECT_EQ(ops::to_fixed_small(-term), -even) << term;
      }
    }
  }
  EXPECT_EQ(ops::to_fixed(0x1p62), std::int64_t{1} << 62);
  EXPECT_EQ(ops::to_fixed(-0x1p62), -(std::int64_t{1} << 62));
}

TEST(Mean, AgreesWithTheReference) {
  Rng rng(4);
  std::vector<std::int64_t> sum(5'001);
  for (std::int64_t& value : sum) value = static_cast<std::int64_t>(rng.next()) >> rng.below(64);
  for (const auto& [scale, weight] : {std::pair{30, 1ULL}, {52, 12'345ULL}, {-8, 3ULL}, {128, kWeightSumEnd - 1}}) {
    std::vector<float> out(sum.size());
    mean_of_sums(sum, scale, weight, out);
    for (std::size_t i = 0; i < sum.size(); ++i) ASSERT_EQ(out[i], reference::mean(sum[i], scale, weight));
  }
}

// Sums of all sizes, and sums whose means lie about halfway between two fp32 values.
TEST(Mean, ByTheInverseIsThatOfTheDivision) {
  Rng rng(6);
  for (int i = 0; i < 200'000; ++i) {
    const auto weight = static_cast<double>(1 + (rng.next() >> (2 + rng.below(62))));
    const double middle =
        std::ldexp(static_cast<double>(2 * rng.below(1 << 24) + 1), static_cast<int>(rng.below(30)) - 20);
    std::int64_t sum = static_cast<std::int64_t>(rng.next()) >> rng.below(64);
    if (i % 2 == 0 && middle * weight < 0x1p62) sum = std::llrint(middle * weight) + static_cast<int>(rng.below(5)) - 2;
    const double inverse_scale = i % 2 == 0 ? 1.0 : std::ldexp(1.0, 40 - static_cast<int>(rng.below(190)));
    ASSERT_EQ(ops::mean_by_inverse(sum, inverse_scale, weight, 1 / weight),
              ops::mean_of_sum(sum, inverse_scale, weight))
        << sum << " / " << weight << " * " << inverse_scale;
  }
}

TEST(Mean, OfOneContributionGivesItsValueBack) {
  const auto values = test_values::normals(1'000, 5);
  std::vector<std::int64_t> sum;
  for (const float value : values) sum.push_back(fixed_term(value, 3, 50).value());
  std::vector<float> out(values.size());
  mean_of_sums(sum, 50, 3, out);
  for (std::size_t i = 0; i < values.size(); ++i) EXPECT_NEAR(out[i], values[i], 1e-7 * std::fabs(values[i]) + 1e-14);
}

}  // namespace
}  // namespace fluvial::kernels
