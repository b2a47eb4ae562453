#include "kernels/ops/int8.h"

#include <gtest/gtest.h>

#include <array>

#include "kernels/codecs/common.h"
#include "kernels/ops/philox.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

// The known answers that Random123 publishes for philox4x32-10.
TEST(Philox, KnownAnswers) {
  const auto words = [](std::uint64_t low, std::uint64_t high, std::uint64_t key) {
    const ops::Random4 random = ops::philox4x32_10(low, high, key);
    return std::array{random.word[0], random.word[1], random.word[2], random.word[3]};
  };
  EXPECT_EQ(words(0, 0, 0), (std::array{0x6627e8d5U, 0xe169c58dU, 0xbc57ac4cU, 0x9b00dbd8U}));
  EXPECT_EQ(words(~0ULL, ~0ULL, ~0ULL), (std::array{0x408f276dU, 0x41c83b0eU, 0xa20bc7c6U, 0x6d5451fdU}));
  EXPECT_EQ(words(0x85a308d3243f6a88ULL, 0x0370734413198a2eULL, 0x299f31d0a4093822ULL),
            (std::array{0xd16cfe09U, 0x94fdcceb, 0x5001e420U, 0x24126ea1U}));
}

TEST(Philox, LoopsAndScalarAndReferenceAgree) {
  const ops::RandomStream stream = ops::random_stream(~0ULL, 1ULL << 40, 77);
  for (const std::uint64_t group : {0ULL, 5ULL, (1ULL << 33) - 1}) {
    for (const cpu::Target target : cpu::supported_targets()) {
      std::vector<std::uint16_t> words(192);
      cpu::loops(target).random(stream, group, 3, words.data());
      for (std::size_t i = 0; i < words.size(); ++i) {
        const std::uint64_t coordinate = 64 * group + i;
        ASSERT_EQ(words[i], ops::random_bits(stream, coordinate));
        ASSERT_EQ(words[i], reference::random_bits(~0ULL, 1ULL << 40, 77, coordinate));
      }
    }
  }
}

TEST(Int8, ErrorStaysBelowTheScaleOfItsBlock) {
  const std::vector<std::vector<float>> vectors = {
      test_values::normals(10'000, 1),
      test_values::adversarial(10'000, 2, 1000.0F),
      test_values::adversarial(10'000, 3, std::numeric_limits<float>::max()),
      test_values::adversarial(10'000, 4, 0x1p-122F),
      std::vector<float>(300, 0x1p-149F),
  };
  for (const auto& vector : vectors) {
    for (const bool stochastic : {true, false}) {
      const auto codec = make_codec({.kind = CodecKind::kInt8, .block_values = 256, .stochastic = stochastic}).value();
      const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
      for (std::size_t i = 0; i < vector.size(); ++i) {
        const std::size_t first = i / 256 * 256;
        std::uint32_t amax = 0;
        for (std::size_t j = first; j < std::min(first + 256, vector.size()); ++j) {
          amax = std::max(amax, ops::magnitude_bits(vector[j]));
        }
        const double scale = static_cast<double>(ops::int8_scale(amax));
        const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(vector[i]));
        if (scale == 0) {
          ASSERT_EQ(decoded[i], 0.0F);
        } else {
          ASSERT_LT(error, (stochastic ? 1.0 : 0.50002) * scale) << vector[i];
        }
      }
    }
  }
}

// For every mantissa of a block's greatest magnitude, and for the magnitudes whose scale is lowered: the codes need no
// clamp.
TEST(Int8, TheGreatestMagnitudeHasTheGreatestCode) {
  const auto check = [](std::uint32_t bits) {
    const float amax = ops::bits_float(bits);
    const float scale = ops::int8_scale(bits);
    const std::int32_t nearest = ops::round_nearest(amax, 1.0F / scale);
    const std::int32_t lowest = ops::round_stochastic(amax, ops::kFineUnits / scale, 0);
    const std::int32_t highest = ops::round_stochastic(amax, ops::kFineUnits / scale, 0xffff);
    const std::int32_t negative = ops::round_stochastic(-amax, ops::kFineUnits / scale, 0);
    return nearest == 127 && (lowest == 126 || lowest == 127) && highest == 127 && negative == -127;
  };
  for (std::uint32_t mantissa = 0; mantissa < (1U << 23); ++mantissa) {
    ASSERT_TRUE(check(0x3f800000U + mantissa)) << mantissa;
    ASSERT_TRUE(check(0x7f000000U + mantissa)) << mantissa;
  }
}

// The mean of many roundings of one value: within 4.5 standard deviations of it, fixed seed.
TEST(Int8, StochasticRoundingIsUnbiased) {
  const auto codec = test_values::codec_of("int8");
  Rng rng(99);
  std::vector<float> vector(256);
  for (float& value : vector) value = static_cast<float>(2.0 * rng.uniform() - 1.0);
  vector[0] = 1.0F;
  const double scale = 1.0 / 127.0;
  constexpr int kRounds = 20'000;
  std::vector<double> sum(vector.size(), 0.0);
  for (int round = 0; round < kRounds; ++round) {
    const auto encoded = test_values::encode(*codec, vector, 256, {1, static_cast<std::uint64_t>(round), 9});
    const auto decoded = test_values::decode(*codec, encoded);
    for (std::size_t i = 0; i < vector.size(); ++i) sum[i] += static_cast<double>(decoded[i]);
  }
  double chi_squared = 0;
  int counted = 0;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    const double t = static_cast<double>(vector[i]) / scale;
    const double fraction = t - std::floor(t);
    const double deviation = scale * std::sqrt(fraction * (1 - fraction) / kRounds);
    if (fraction < 0.01 || fraction > 0.99) continue;
    const double z = (sum[i] / kRounds - static_cast<double>(vector[i])) / deviation;
    EXPECT_LT(std::fabs(z), 4.5) << vector[i];
    chi_squared += z * z;
    ++counted;
  }
  const double spread = std::sqrt(2.0 * counted);
  EXPECT_NEAR(chi_squared, counted, 4.5 * spread);  // neither biased nor correlated between rounds
}

TEST(Int8, StreamsOfSitesRoundsAndRunsDiffer) {
  const auto codec = test_values::codec_of("int8");
  const auto vector = test_values::normals(256, 5);
  std::vector<std::string> seen;
  for (const StreamKey key : {StreamKey{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
    seen.push_back(to_hex(test_values::encode(*codec, vector, 256, key).chunks[0].span()));
    EXPECT_EQ(seen.back(), to_hex(test_values::encode(*codec, vector, 256, key).chunks[0].span()));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// Random words follow the coordinate, so they do not depend on how the vector is cut into chunks.
TEST(Int8, ChunkingOnBlockBoundsChangesNoValue) {
  const auto codec = test_values::codec_of("int8:block=300");
  const auto vector = test_values::normals(10'000, 6);
  const auto whole = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
  EXPECT_EQ(whole, test_values::decode(*codec, test_values::encode(*codec, vector, 900)));
}

TEST(Int8, RefusesToEncodeWhatIsNotFinite) {
  const auto codec = test_values::codec_of("int8");
  const VectorSchema schema{.layout = {.value_count = 600, .chunk_values = 300}, .tensors = {}};
  std::vector<float> vector(600, 1.0F);
  vector[450] = std::numeric_limits<float>::quiet_NaN();
  const EncodePlan plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
  Buffer out(codec->encoded_bytes_max(300));
  EXPECT_TRUE(codec->encode_chunk(plan, 0, std::span(vector).first(300), out.span()).ok());
  const auto refused = codec->encode_chunk(plan, 1, std::span(vector).last(300), out.span());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, "int8 cannot encode: value 450 is NaN, expected a finite number");
}

}  // namespace
}  // namespace fluvial::kernels
