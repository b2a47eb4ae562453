#include "kernels/reduce.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/ops/bf16.h"
#include "kernels/test_values.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;
using Views = std::vector<std::span<const float>>;

std::vector<std::vector<float>> some_vectors(std::size_t count, std::size_t size, float limit = 1e6F) {
  std::vector<std::vector<float>> vectors;
  for (std::size_t k = 0; k < count; ++k) {
    vectors.push_back(k % 2 == 0 ? test_values::normals(size, 100 + k) : test_values::adversarial(size, k, limit));
  }
  return vectors;
}

Views views_of(const std::vector<std::vector<float>>& vectors) { return {vectors.begin(), vectors.end()}; }

TEST(Reduce, AddsInTheDocumentedOrderOnEveryTarget) {
  for (const std::size_t count : {1U, 2U, 3U, 4U, 5U, 6U, 7U, 8U, 64U}) {
    for (const std::size_t size : {0U, 1U, 17U, 1'024U, 5'003U}) {
      const auto vectors = some_vectors(count, size);
      std::vector<float> narrow(size), wide(size), mean(size);
      for (std::size_t i = 0; i < size; ++i) {
        float sum = vectors[0][i];
        double exact = static_cast<double>(vectors[0][i]);
        for (std::size_t k = 1; k < count; ++k) {
          sum += vectors[k][i];
          exact += static_cast<double>(vectors[k][i]);
        }
        narrow[i] = sum;
        wide[i] = static_cast<float>(exact);
        mean[i] = static_cast<float>(exact / static_cast<double>(count));
      }
      for (const cpu::Target target : cpu::supported_targets()) {
        std::vector<float> out(size, 7.0F);
        ASSERT_TRUE(reduce_sum(views_of(vectors), SumIn::kFp32, out, target).ok());
        ASSERT_EQ(test_values::bits_of(out), test_values::bits_of(narrow)) << count << " of " << size;
        ASSERT_TRUE(reduce_sum(views_of(vectors), SumIn::kFp64, out, target).ok());
        ASSERT_EQ(test_values::bits_of(out), test_values::bits_of(wide));
        ASSERT_TRUE(reduce_mean(views_of(vectors), out, target).ok());
        ASSERT_EQ(test_values::bits_of(out), test_values::bits_of(mean));
      }
    }
  }
}

TEST(Reduce, InPlaceAndInPartsAndUnalignedIsTheSame) {
  constexpr std::size_t kSize = (std::size_t{1} << 18) + 1'013;  // long enough to go past the caches
  auto vectors = some_vectors(4, kSize);
  std::vector<float> whole(kSize);
  ASSERT_TRUE(reduce_sum(views_of(vectors), SumIn::kFp32, whole).ok());
  std::vector<float> shifted(kSize + 3, -5.0F);
  ASSERT_TRUE(reduce_sum(views_of(vectors), SumIn::kFp32, std::span(shifted).subspan(3)).ok());
  EXPECT_TRUE(std::equal(whole.begin(), whole.end(), shifted.begin() + 3));
  EXPECT_EQ(shifted[2], -5.0F);
  std::vector<float> parts(kSize);
  for (std::size_t at = 0; at < kSize; at += 100'001) {
    const std::size_t size = std::min<std::size_t>(100'001, kSize - at);
    Views views;
    for (const auto& vector : vectors) views.push_back(std::span(vector).subspan(at, size));
    ASSERT_TRUE(reduce_sum(views, SumIn::kFp32, std::span(parts).subspan(at, size)).ok());
  }
  EXPECT_EQ(parts, whole);
  for (const std::size_t into : {0U, 2U}) {
    auto copies = vectors;
    ASSERT_TRUE(reduce_sum(views_of(copies), SumIn::kFp32, copies[into]).ok());
    EXPECT_EQ(copies[into], whole);
  }
}

TEST(Reduce, SumsBf16) {
  constexpr std::size_t kSize = 3'001;
  const auto vectors = some_vectors(5, kSize);
  std::vector<std::vector<std::byte>> encoded(vectors.size(), std::vector<std::byte>(2 * kSize));
  std::vector<std::vector<float>> decoded(vectors.size(), std::vector<float>(kSize));
  std::vector<ByteSpan> views;
  for (std::size_t k = 0; k < vectors.size(); ++k) {
    for (std::size_t i = 0; i < kSize; ++i) {
      const std::uint16_t half = ops::bf16_from_float(vectors[k][i]);
      std::memcpy(encoded[k].data() + 2 * i, &half, 2);
      decoded[k][i] = ops::float_from_bf16(half);
    }
    views.emplace_back(encoded[k]);
  }
  for (const cpu::Target target : cpu::supported_targets()) {
    std::vector<float> out(kSize), expected(kSize);
    for (const SumIn precision : {SumIn::kFp32, SumIn::kFp64}) {
      ASSERT_TRUE(reduce_sum_bf16(views, precision, out, target).ok());
      ASSERT_TRUE(reduce_sum(views_of(decoded), precision, expected, target).ok());
      ASSERT_EQ(test_values::bits_of(out), test_values::bits_of(expected));
    }
    ASSERT_TRUE(reduce_mean_bf16(views, out, target).ok());
    ASSERT_TRUE(reduce_mean(views_of(decoded), expected, target).ok());
    ASSERT_EQ(test_values::bits_of(out), test_values::bits_of(expected));
  }
}

TEST(Reduce, TheMeanOfTheGreatestValuesIsFinite) {
  const std::vector<std::vector<float>> vectors(64, std::vector<float>(3, std::numeric_limits<float>::max()));
  std::vector<float> out(3);
  ASSERT_TRUE(reduce_mean(views_of(vectors), out).ok());
  EXPECT_EQ(out, vectors[0]);
  ASSERT_TRUE(reduce_sum(views_of(vectors), SumIn::kFp64, out).ok());
  EXPECT_TRUE(std::isinf(out[0])) << "as the header says";
}

TEST(Reduce, RefusesNoneAndTooMany) {
  std::vector<float> out(2, 1.0F);
  EXPECT_THAT(reduce_sum({}, SumIn::kFp32, out).error().message, HasSubstr("expected 1 to 64"));
  const Views many(kReduceInputsMax + 1, out);
  EXPECT_EQ(reduce_mean(many, out).error().code, Code::kInvalidArgument);
  EXPECT_EQ(out, std::vector<float>(2, 1.0F));
}

TEST(Clip, FactorIsOneUpToTheBound) {
  EXPECT_EQ(clip_factor(25.0, 5.0).value(), 1.0);
  EXPECT_EQ(clip_factor(25.0, 6.0).value(), 1.0);
  EXPECT_EQ(clip_factor(25.0, 2.5).value(), 0.5);
  EXPECT_EQ(clip_factor(0.0, 1e-300).value(), 1.0);
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const double infinity = std::numeric_limits<double>::infinity();
  for (const auto& [squared, bound] :
       {std::pair{1.0, 0.0}, {1.0, -1.0}, {1.0, nan}, {nan, 1.0}, {-1.0, 1.0}, {infinity, 1.0}, {1.0, infinity}}) {
    EXPECT_EQ(clip_factor(squared, bound).error().code, Code::kInvalidArgument) << squared << " " << bound;
  }
}

TEST(Clip, ShortensToTheBoundAndReportsTheResult) {
  for (const cpu::Target target : cpu::supported_targets()) {
    auto values = test_values::normals(10'007, 3, 100.0F);
    const auto before = values;
    const auto report = clip_norm(values, 12.5, 0, target);
    ASSERT_TRUE(report.ok());
    EXPECT_NEAR(std::sqrt(report->norm_squared), 12.5, 12.5 * 0x1p-24);
    const auto screened = screen(values, 0, target);
    EXPECT_EQ(report->max_abs, screened->max_abs);
    EXPECT_EQ(report->norm_squared, screened->norm_squared);
    const double factor = clip_factor(screen(before)->norm_squared, 12.5).value();
    for (std::size_t i = 0; i < values.size(); ++i) {
      ASSERT_EQ(values[i], static_cast<float>(static_cast<double>(before[i]) * factor));
    }
  }
}

TEST(Clip, LeavesWhatIsWithinTheBoundOrRefused) {
  auto values = test_values::normals(100, 4);
  const auto before = values;
  ASSERT_TRUE(clip_norm(values, 1e9).ok());
  EXPECT_EQ(values, before);
  EXPECT_FALSE(clip_norm(values, 0).ok());
  values[7] = std::numeric_limits<float>::infinity();
  const auto refused = clip_norm(values, 1.0, 1'000);
  EXPECT_EQ(refused.error().code, Code::kDataLoss);
  EXPECT_THAT(refused.error().message, HasSubstr("value 1007"));
  EXPECT_EQ(values[6], before[6]);
  // Huge values: squares are summed in fp64, so a norm beyond fp32 is clipped like any other.
  std::vector<float> huge(1'000, std::numeric_limits<float>::max());
  EXPECT_NEAR(std::sqrt(clip_norm(huge, 1.0)->norm_squared), 1.0, 0x1p-24);
}

}  // namespace
}  // namespace fluvial::kernels
