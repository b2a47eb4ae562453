#include "kernels/vector.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/fixed.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;

TEST(Screen, FindsMaximumAndNorm) {
  for (const std::size_t size : {0U, 1U, 15U, 16U, 17U, 10'000U}) {
    const auto values = test_values::adversarial(size, 1 + size, 1e30F);
    float max_abs = 0;
    long double squares = 0;
    for (const float value : values) {
      max_abs = std::max(max_abs, std::fabs(value));
      squares += static_cast<long double>(value) * static_cast<long double>(value);
    }
    const auto report = screen(values);
    ASSERT_TRUE(report.ok());
    EXPECT_EQ(report->max_abs, max_abs);
    EXPECT_NEAR(report->norm_squared, static_cast<double>(squares), 1e-12 * static_cast<double>(squares));
  }
}

TEST(Screen, NormIsSummedInTheDocumentedOrder) {
  const auto values = test_values::normals(1'003, 2);
  double lanes[16] = {};
  for (std::size_t i = 0; i < values.size(); ++i) {
    lanes[i % 16] += static_cast<double>(values[i]) * static_cast<double>(values[i]);
  }
  for (std::size_t half : {8U, 4U, 2U, 1U}) {
    for (std::size_t i = 0; i < half; ++i) lanes[i] += lanes[i + half];
  }
  EXPECT_EQ(screen(values)->norm_squared, lanes[0]);
}

TEST(Screen, NamesTheFirstThatIsNotFinite) {
  for (const std::size_t at : {0U, 16U, 999U}) {
    std::vector<float> values(1'000, std::numeric_limits<float>::max());
    values[at] = -std::numeric_limits<float>::infinity();
    values[999] = std::numeric_limits<float>::quiet_NaN();
    const auto report = screen(values, 50'000);
    ASSERT_FALSE(report.ok());
    EXPECT_EQ(report.error().code, Code::kDataLoss);
    EXPECT_THAT(report.error().message,
                HasSubstr("value " + std::to_string(50'000 + at) + (at == 999 ? " is NaN" : " is infinite")));
  }
}

TEST(WeightedMean, IsTheRoundedFp64MeanInOrder) {
  const auto a = test_values::normals(5'000, 3);
  const auto b = test_values::adversarial(5'000, 4, 1e6F);
  const auto c = test_values::normals(5'000, 5, 1e-3F);
  const std::vector<std::span<const float>> vectors = {a, b, c};
  const std::vector<std::uint32_t> weights = {3, 1, kWeightEnd - 1};
  std::vector<float> out(5'000);
  ASSERT_TRUE(weighted_mean(vectors, weights, out).ok());
  for (std::size_t i = 0; i < out.size(); ++i) {
    double sum = static_cast<double>(a[i]) * 3;
    sum += static_cast<double>(b[i]);
    sum += static_cast<double>(c[i]) * static_cast<double>(kWeightEnd - 1);
    ASSERT_EQ(out[i], static_cast<float>(sum / static_cast<double>(kWeightEnd + 3)));
  }
}

TEST(WeightedMean, OfOneVectorIsThatVector) {
  const auto a = test_values::adversarial(3'000, 6, std::numeric_limits<float>::max());
  const std::vector<std::span<const float>> vectors = {a};
  for (const std::uint32_t weight : {1U, 3U, kWeightEnd - 1}) {
    std::vector<float> out(a.size());
    ASSERT_TRUE(weighted_mean(vectors, std::vector{weight}, out).ok());
    EXPECT_EQ(out, a);
  }
}

TEST(Combine, AddsInOrderAndIntoOneOfItsVectors) {
  const auto a = test_values::normals(5'000, 3);
  std::vector<float> b = test_values::adversarial(5'000, 4, 1e6F);
  std::vector<float> expected(5'000);
  for (std::size_t i = 0; i < expected.size(); ++i) {
    expected[i] = static_cast<float>(static_cast<double>(a[i]) * 0.3 + static_cast<double>(b[i]));
  }
  combine(std::vector<std::span<const float>>{a, b}, std::vector<double>{0.3, 1.0}, b);
  EXPECT_EQ(b, expected);
}

TEST(WeightedMean, RefusesWrongWeights) {
  std::vector<float> out(3);
  const std::vector<float> a(3, 1.0F);
  const std::vector<std::span<const float>> one = {a};
  EXPECT_FALSE(weighted_mean({}, {}, out).ok());
  EXPECT_FALSE(weighted_mean(one, std::vector<std::uint32_t>{1, 2}, out).ok());
  EXPECT_FALSE(weighted_mean(one, std::vector<std::uint32_t>{0}, out).ok());
  EXPECT_FALSE(weighted_mean(one, std::vector<std::uint32_t>{kWeightEnd}, out).ok());
}

TEST(PseudoGradient, RoundsInTheDocumentedOrderAndHasNoNegativeZero) {
  const auto base = test_values::adversarial(4'000, 7, 1e10F);
  const auto local = test_values::adversarial(4'000, 8, 1e10F);
  const auto residual = test_values::adversarial(4'000, 9, 1e5F);
  std::vector<float> out(base.size());
  pseudo_gradient(base, local, residual, out);
  for (std::size_t i = 0; i < out.size(); ++i) {
    const float difference = base[i] - local[i];
    const float update = difference + residual[i];
    ASSERT_EQ(out[i], update);
    ASSERT_FALSE(out[i] == 0 && std::signbit(out[i]));
  }
  std::vector<float> in_place = residual;
  pseudo_gradient(base, local, in_place, in_place);
  EXPECT_EQ(test_values::bits_of(in_place), test_values::bits_of(out));
  pseudo_gradient(base, local, {}, out);
  for (std::size_t i = 0; i < out.size(); ++i) ASSERT_EQ(out[i], base[i] - local[i]);
}

// An update that a worker submits equals the pseudo-gradient of itself as the base and a local model of zeros.
TEST(AddResidual, IsThePseudoGradientOfAnUpdate) {
  const auto update = test_values::adversarial(4'000, 7, 1e10F);
  const auto residual = test_values::adversarial(4'000, 9, 1e5F);
  const std::vector<float> zeros(update.size(), 0.0F);
  std::vector<float> expected(update.size());
  std::vector<float> out(update.size());
  for (const bool some : {true, false}) {
    const std::span<const float> added = some ? std::span<const float>(residual) : std::span<const float>();
    pseudo_gradient(update, zeros, added, expected);
    add_residual(update, added, out);
    EXPECT_EQ(test_values::bits_of(out), test_values::bits_of(expected));
  }
}

}  // namespace
}  // namespace fluvial::kernels
