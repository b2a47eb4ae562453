#include <gtest/gtest.h>

#include "kernels/reference/reference.h"
#include "kernels/test_values.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;

std::vector<std::size_t> sent(std::span<const float> decoded) {
  std::vector<std::size_t> coordinates;
  for (std::size_t i = 0; i < decoded.size(); ++i) {
    if (decoded[i] != 0) coordinates.push_back(i);
  }
  return coordinates;
}

void expect_top_k(const std::vector<float>& vector, double ratio, std::uint64_t chunk_values) {
  const auto k =
      std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(ratio * static_cast<double>(vector.size()))));
  const auto expected = reference::top_k(vector, k);
  for (const cpu::Target target : cpu::supported_targets()) {
    const auto codec = make_codec({.kind = CodecKind::kTopk, .ratio = ratio}, target).value();
    const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, chunk_values));
    ASSERT_EQ(sent(decoded), expected) << "ratio " << ratio << ", " << vector.size() << " values";
    for (const std::size_t i : expected) ASSERT_EQ(decoded[i], vector[i]);
  }
}

TEST(Topk, SelectsExactlyOverTheWholeVector) {
  Rng rng(1);
  for (int round = 0; round < 30; ++round) {
    const std::size_t size = 1 + rng.below(6'000);
    for (const double ratio : {1e-9, 0.001, 0.01, 0.3, 0.999, 1.0}) {
      expect_top_k(test_values::normals(size, rng.next()), ratio, 1 + rng.below(3'000));
      expect_top_k(test_values::adversarial(size, rng.next(), std::numeric_limits<float>::max()), ratio, 1'000);
    }
  }
}

TEST(Topk, BreaksTiesByTheLowestCoordinate) {
  Rng rng(2);
  for (int round = 0; round < 30; ++round) {
    std::vector<float> vector(1 + rng.below(5'000));
    for (float& value : vector) value = static_cast<float>(rng.below(5)) - 2.0F;  // mostly ties, in both signs
    for (const double ratio : {0.01, 0.25, 0.5, 0.9}) expect_top_k(vector, ratio, 700);
  }
  expect_top_k(std::vector<float>(4'100, -1.0F), 0.5, 1'000);
  expect_top_k(std::vector<float>(4'100, 0.0F), 0.5, 1'000);
}

TEST(Topk, SentAndResidualMakeTheUpdateBitForBit) {
  for (const double ratio : {0.01, 0.2, 1.0}) {
    const auto codec = make_codec({.kind = CodecKind::kTopk, .ratio = ratio}).value();
    auto vector = test_values::adversarial(20'000, 3, 0x1p100F);
    pseudo_gradient(vector, std::vector<float>(vector.size(), 0.0F), {}, vector);  // as sites do: no -0
    const auto encoded = test_values::encode(*codec, vector, 3'000);
    const auto decoded = test_values::decode(*codec, encoded);
    std::vector<float> total(vector.size());
    for (std::size_t chunk = 0; chunk < encoded.chunks.size(); ++chunk) {
      const auto out = encoded.plan.layout.of(std::span(total), chunk);
      const std::span<const float> values(vector);
      ASSERT_TRUE(codec->residual_chunk(encoded.plan.layout.of(values, chunk), encoded.chunks[chunk].span(), out).ok());
    }
    for (std::size_t i = 0; i < total.size(); ++i) {
      EXPECT_TRUE(total[i] == 0 || decoded[i] == 0);
      total[i] += decoded[i];
    }
    EXPECT_EQ(test_values::bits_of(total), test_values::bits_of(vector));
  }
}

TEST(Topk, AChunkWithNothingSelectedIsItsHeader) {
  const auto codec = codec_of("topk:ratio=0.001");
  std::vector<float> vector(3'000, 0.25F);
  vector[2'500] = vector[2'501] = vector[2'502] = 1.0F;
  const auto encoded = test_values::encode(*codec, vector, 1'000);
  EXPECT_EQ(encoded.chunks[0].size(), 8U);
  EXPECT_EQ(encoded.chunks[1].size(), 8U);
  EXPECT_EQ(encoded.chunks[2].size(), 8U + 3 * 4 + 3 + 1);
  EXPECT_EQ(codec->screen_chunk(encoded.chunks[0].span(), 1'000, 0)->max_abs, 0.0F);
}

}  // namespace
}  // namespace fluvial::kernels
