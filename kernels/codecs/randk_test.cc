#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/fixed.h"
#include "kernels/reference/sparse.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using ::testing::HasSubstr;

std::string golden(std::string_view text, std::span<const float> values) {
  return to_hex(test_values::encode(*codec_of(text), values, 1 << 20, {1, 2, 3}).chunks[0].span());
}

TEST(Randk, SendsTheCoordinatesThatTheReferenceDraws) {
  const auto vector = test_values::normals(10'007, 1);
  for (const double ratio : {1e-9, 0.01, 0.37, 0.9, 1.0}) {
    for (const cpu::Target target : cpu::supported_targets()) {
      const auto codec = make_codec({.kind = CodecKind::kRandk, .ratio = ratio}, target).value();
      const auto encoded = test_values::encode(*codec, vector, 3'000, {.run = 7, .round = 9, .site = 1});
      const auto decoded = test_values::decode(*codec, encoded);
      for (std::size_t chunk = 0; chunk < encoded.chunks.size(); ++chunk) {
        const std::size_t size = encoded.plan.layout.size(chunk);
        const auto count =
            std::max<std::size_t>(1, static_cast<std::size_t>(std::ceil(ratio * static_cast<double>(size))));
        const std::uint64_t first = encoded.plan.layout.first_value(chunk);
        const auto drawn = reference::draw_strata(reference::strata_seed(7, 9, first), count, size);
        std::vector<float> expected(size, 0.0F);
        for (const std::size_t index : drawn.indices) expected[index] = vector[first + index];
        ASSERT_EQ(encoded.chunks[chunk].size(), 16 + 4 * count);
        ASSERT_TRUE(std::ranges::equal(encoded.plan.layout.of(std::span(decoded), chunk), expected));
      }
    }
  }
}

TEST(Randk, AllSitesOfARoundDrawAlikeAndRoundsDoNot) {
  const std::vector<float> ones(50'000, 1.0F);
  const auto codec = codec_of("randk:ratio=0.02");
  const auto support = [&](StreamKey key) {
    return test_values::decode(*codec, test_values::encode(*codec, ones, 10'000, key));
  };
  const auto first = support({1, 1, 1});
  EXPECT_EQ(support({1, 1, 2}), first);
  for (const StreamKey other : {StreamKey{1, 2, 1}, StreamKey{2, 1, 1}}) {
    const auto drawn = support(other);
    std::size_t both = 0;
    for (std::size_t i = 0; i < ones.size(); ++i) both += first[i] != 0 && drawn[i] != 0 ? 1 : 0;
    EXPECT_LT(both, 60U);  // of 1,000, 20 expected
  }
  // Chunks of a round differ too.
  EXPECT_FALSE(std::ranges::equal(std::span(first).first(10'000), std::span(first).subspan(10'000, 10'000)));
}

TEST(Randk, EveryCoordinateHasItsTurnWithOneOverTheStratum) {
  constexpr std::size_t kValues = 103, kRounds = 40'000;
  constexpr std::size_t kEntries = 11;  // strata of 9 and 10
  const std::vector<float> ones(kValues, 1.0F);
  const auto codec = make_codec({.kind = CodecKind::kRandk, .ratio = 11.0 / 103}).value();
  std::vector<std::size_t> times(kValues, 0);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const auto decoded = test_values::decode(*codec, test_values::encode(*codec, ones, kValues, {5, round, 0}));
    for (std::size_t i = 0; i < kValues; ++i) times[i] += decoded[i] != 0 ? 1 : 0;
  }
  const auto drawn = reference::draw_strata(1, kEntries, kValues);
  std::size_t i = 0;
  for (const std::size_t size : drawn.sizes) {
    const double p = 1.0 / static_cast<double>(size);
    for (std::size_t in = 0; in < size; ++in, ++i) {
      const double deviation = std::sqrt(kRounds * p * (1 - p));
      EXPECT_NEAR(static_cast<double>(times[i]), kRounds * p, 4.5 * deviation) << i;
    }
  }
  EXPECT_EQ(i, kValues);
}

TEST(Randk, UnbiasedInMeanWithTheVarianceOfTheFormula) {
  constexpr std::size_t kValues = 200, kRounds = 20'000;
  const auto vector = test_values::normals(kValues, 4);
  const auto codec = codec_of("randk:ratio=0.05,mode=unbiased");  // strata of 20
  std::vector<double> sum(kValues, 0);
  double error = 0, square = 0;
  for (const float value : vector) square += static_cast<double>(value) * static_cast<double>(value);
  for (std::uint64_t round = 0; round < kRounds; ++round) {
    const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, kValues, {6, round, 0}));
    for (std::size_t i = 0; i < kValues; ++i) {
      const double off = static_cast<double>(decoded[i]) - static_cast<double>(vector[i]);
      sum[i] += static_cast<double>(decoded[i]);
      error += off * off;
    }
  }
  for (std::size_t i = 0; i < kValues; ++i) {
    const double deviation = std::fabs(static_cast<double>(vector[i])) * std::sqrt(19.0 / kRounds);
    EXPECT_NEAR(sum[i] / kRounds, static_cast<double>(vector[i]), 4.5 * deviation) << i;
  }
  EXPECT_NEAR(error / kRounds, 19 * square, 0.03 * 19 * square);  // d / k - 1 = 19: the bound, and reached
}

TEST(Randk, UnbiasedLeavesNoResidualAndSaturates) {
  const auto codec = codec_of("randk:ratio=0.1,mode=unbiased");
  const std::vector<float> vector = {1e38F, -1e38F, 1e38F, -1e38F, 1e38F, -1e38F, 1e38F, -1e38F, 1e38F, -1e38F};
  const auto encoded = test_values::encode(*codec, vector, 10);
  const auto decoded = test_values::decode(*codec, encoded);
  float most = 0;
  for (const float value : decoded) most = std::max(most, std::fabs(value));
  EXPECT_EQ(most, std::numeric_limits<float>::max());
  std::vector<float> residual(10, 1.0F);
  ASSERT_TRUE(codec->residual_chunk(vector, encoded.chunks[0].span(), residual).ok());
  EXPECT_EQ(residual, std::vector<float>(10, 0.0F));
}

TEST(Randk, SentAndResidualMakeTheUpdateBitForBit) {
  for (const double ratio : {0.01, 0.5, 1.0}) {
    const auto codec = make_codec({.kind = CodecKind::kRandk, .ratio = ratio}).value();
    auto vector = test_values::adversarial(20'000, 3, 0x1p100F);
    for (float& value : vector) value += 0.0F;  // as fold() gives it: no -0
    const auto encoded = test_values::encode(*codec, vector, 20'000);
    const auto decoded = test_values::decode(*codec, encoded);
    std::vector<float> total(vector.size());
    ASSERT_TRUE(codec->residual_chunk(vector, encoded.chunks[0].span(), total).ok());
    for (std::size_t i = 0; i < total.size(); ++i) total[i] += decoded[i];
    EXPECT_EQ(test_values::bits_of(total), test_values::bits_of(vector));
    if (ratio == 1.0) EXPECT_EQ(decoded, vector);
  }
}

// The sum of a region has the coordinates of one update: through two tiers the partials stay as small.
TEST(Randk, PartialsKeepTheSupportThroughATree) {
  constexpr std::size_t kValues = 20'000;
  const auto codec = codec_of("randk:ratio=0.01");
  const StreamKey round{.run = 3, .round = 14, .site = 0};
  std::vector<std::int64_t> root(kValues, 0), all(kValues, 0);
  for (std::uint32_t region = 0; region < 3; ++region) {
    std::vector<std::int64_t> sum(kValues, 0);
    for (std::uint32_t site = 0; site < 4; ++site) {
      const auto vector = test_values::normals(kValues, 10 * region + site);
      const auto encoded = test_values::encode(*codec, vector, kValues, {round.run, round.round, 4 * region + site});
      ASSERT_TRUE(codec->decode_accumulate_chunk(encoded.chunks[0].span(), 1 + site, 30, sum).ok());
      ASSERT_TRUE(codec->decode_accumulate_chunk(encoded.chunks[0].span(), 1 + site, 30, all).ok());
    }
    Buffer partial(packed_bytes_max(kValues));
    partial.shrink(pack_chunk(sum, partial.span()));
    EXPECT_LT(partial.size(), 16U + 200 * 6 + 240);  // 200 entries of up to 6 bytes and 9 bits
    ASSERT_TRUE(merge_chunk(partial.span(), root).ok());
  }
  EXPECT_EQ(root, all);
  EXPECT_EQ(std::ranges::count_if(root, [](std::int64_t sum) { return sum != 0; }), 200);
}

TEST(Randk, WhatIsNotFiniteIsNamedWhenItIsDrawn) {
  const auto codec = codec_of("randk:ratio=1");
  const VectorSchema schema{.layout = {.value_count = 600, .chunk_values = 300}, .tensors = {}};
  std::vector<float> vector(600, 1.0F);
  vector[470] = -std::numeric_limits<float>::infinity();
  const auto plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
  Buffer out(codec->encoded_bytes_max(300));
  const auto size = codec->encode_chunk(plan, 1, std::span(vector).subspan(300), out.span());
  ASSERT_FALSE(size.ok());
  EXPECT_EQ(size.error().code, Code::kInvalidArgument);
  EXPECT_THAT(size.error().message, HasSubstr("value 470 is infinite"));
}

TEST(Randk, HostileBytes) {
  const auto codec = codec_of("randk:ratio=0.5");
  const auto refused = [&](std::string_view hex, std::string_view reason) {
    const Buffer bytes = from_hex(hex).value();
    const auto screened = codec->screen_chunk(bytes.span(), 4, 0);
    ASSERT_FALSE(screened.ok()) << hex;
    EXPECT_EQ(screened.error().code, Code::kDataLoss);
    EXPECT_THAT(screened.error().message, HasSubstr(reason));
    std::vector<float> out(4);
    EXPECT_FALSE(codec->decode_chunk(bytes.span(), out).ok());
    EXPECT_FALSE(codec->residual_chunk(out, bytes.span(), out).ok());
    EXPECT_FALSE(reference::decode_randk(bytes.span(), 4).has_value());
  };
  ASSERT_TRUE(codec->screen_chunk(from_hex("010000000200000001020304050607080000803f000020c0")->span(), 4, 0).ok());
  refused("01000000020000000102030405060708000080", "do not fit 2 entries");
  refused("0100000002000000010203040506", "shorter than its header");
  refused("020000000200000001020304050607080000803f000020c0", "version 2");
  refused("010000010200000001020304050607080000803f000020c0", "version");
  refused("01000000000000000102030405060708", "0 entries for 4 values");
  refused("010000000500000001020304050607080000803f000020c0", "5 entries for 4 values");
  refused("01000000ffffffff01020304050607080000803f000020c0", "entries for 4 values");
  refused("010000000200000001020304050607080000803f000020c000000000", "do not fit 2 entries");
}

// These bytes are what other versions and other machines read and write: docs/formats/codecs-sparse.md.
TEST(Randk, GoldenBytes) {
  const std::vector<float> ramp = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10};
  EXPECT_EQ(golden("randk:ratio=0.3", ramp), "01000000030000003055e3a746bccf30000040400000a04000001041");
  EXPECT_EQ(golden("randk:ratio=0.3,mode=unbiased", ramp), "01000000030000003055e3a746bccf30000010410000704100001042");
}

}  // namespace
}  // namespace fluvial::kernels
