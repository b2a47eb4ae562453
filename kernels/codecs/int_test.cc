#include <gtest/gtest.h>

#include <array>

#include "kernels/codecs/common.h"
#include "kernels/ops/int8.h"
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

// Blocks around every multiple of an eighth of their scale: where the roundings could lead astray.
std::vector<float> multiples_and_neighbours() {
  std::vector<float> vector;
  Rng rng(17);
  for (int block = 0; block < 400; ++block) {
    const float amax = static_cast<float>(1.0 + rng.uniform());
    const float most = block % 2 == 0 ? 127.0F : 7.0F;
    const float scale = amax / most;
    vector.push_back(amax);
    for (int i = 1; i < 256; ++i) {
      const float value = static_cast<float>(rng.below(static_cast<std::uint64_t>(8 * most))) * 0.125F * scale;
      const float signed_value = i % 2 == 0 ? value : -value;
      const float towards[] = {signed_value, std::nextafter(signed_value, 2.0F), std::nextafter(signed_value, -2.0F)};
      vector.push_back(std::clamp(towards[rng.below(3)], -amax, amax));
    }
  }
  return vector;
}

class IntCodecs : public ::testing::TestWithParam<std::string> {
 protected:
  float most() const { return GetParam() == "int8" ? 127.0F : 7.0F; }
};

INSTANTIATE_TEST_SUITE_P(Both, IntCodecs, ::testing::Values("int8", "int4"));

// Strictly, with every rounding: of the scale, the inverse, the product and the decoded value.
TEST_P(IntCodecs, ErrorStaysBelowTheScaleOfItsBlock) {
  std::vector<std::vector<float>> vectors = {
      test_values::normals(10'000, 1),
      test_values::adversarial(10'000, 2, 1000.0F),
      test_values::adversarial(10'000, 3, std::numeric_limits<float>::max()),
      test_values::adversarial(10'000, 4, 0x1p-100F),
      std::vector<float>(300, 0x1p-149F),
      std::vector<float>(300, std::numeric_limits<float>::max()),
  };
  vectors.push_back(multiples_and_neighbours());
  for (const auto& vector : vectors) {
    for (const char* rounding : {"stochastic", "nearest"}) {
      const auto codec = test_values::codec_of(GetParam() + ":block=256,rounding=" + rounding);
      const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
      for (std::size_t i = 0; i < vector.size(); ++i) {
        const std::size_t first = i / 256 * 256;
        std::uint32_t amax = 0;
        for (std::size_t j = first; j < std::min(first + 256, vector.size()); ++j) {
          amax = std::max(amax, ops::magnitude_bits(vector[j]));
        }
        const double scale = static_cast<double>(ops::block_scale(amax, most()));
        const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(vector[i]));
        if (scale == 0) {
          ASSERT_EQ(decoded[i], 0.0F);
        } else {
          ASSERT_LT(error, (codec->spec().stochastic ? 1.0 : 0.5 + 0x1p-15) * scale) << vector[i];
        }
      }
    }
  }
}

// For every mantissa of a block's greatest magnitude, and for the magnitudes whose scale is lowered: the codes need no
// clamp.
TEST_P(IntCodecs, TheGreatestMagnitudeHasTheGreatestCode) {
  const auto greatest = static_cast<std::int32_t>(most());
  const auto check = [&](std::uint32_t bits) {
    const float amax = ops::bits_float(bits);
    const float scale = ops::block_scale(bits, most());
    const float fine = ops::kFineUnits / scale;
    const std::int32_t lowest = ops::round_stochastic(amax, fine, 0);
    return ops::round_nearest(amax, 1.0F / scale) == greatest && (lowest == greatest - 1 || lowest == greatest) &&
           ops::round_stochastic(amax, fine, 0xffff) == greatest && ops::round_stochastic(-amax, fine, 0) == -greatest;
  };
  for (std::uint32_t mantissa = 0; mantissa < (1U << 23); ++mantissa) {
    ASSERT_TRUE(check(0x3f800000U + mantissa)) << mantissa;
    ASSERT_TRUE(check(0x7f000000U + mantissa)) << mantissa;
  }
}

TEST_P(IntCodecs, StatedOutcomesAtTheEnds) {
  const auto decoded = [&](float value) {
    const auto codec = test_values::codec_of(GetParam());
    return test_values::decode(*codec, test_values::encode(*codec, std::vector<float>(256, value), 256));
  };
  EXPECT_EQ(test_values::bits_of(decoded(0.0F)), std::vector<std::uint32_t>(256, 0));
  EXPECT_EQ(test_values::bits_of(decoded(-0.0F)), std::vector<std::uint32_t>(256, 0));
  for (const float value : decoded(0x1p-149F)) EXPECT_TRUE(value == 0 || value == ops::kScaleMin);
  for (const float value : decoded(-std::numeric_limits<float>::max())) {
    EXPECT_TRUE(std::isfinite(value));
    EXPECT_LE(value / std::numeric_limits<float>::max(), -(most() - 1.001F) / most());
  }
}

// The mean of many roundings of one value: within 4.5 standard deviations of it, fixed seed.
TEST_P(IntCodecs, StochasticRoundingIsUnbiased) {
  const auto codec = test_values::codec_of(GetParam());
  Rng rng(99);
  std::vector<float> vector(256);
  for (float& value : vector) value = static_cast<float>(2.0 * rng.uniform() - 1.0);
  vector[0] = 1.0F;
  const double scale = 1.0 / static_cast<double>(most());
  constexpr int kRounds = 20'000;
  std::vector<double> sum(vector.size(), 0.0);
  double neighbours = 0;  // of errors in steps, over all rounds
  for (int round = 0; round < kRounds; ++round) {
    const auto encoded = test_values::encode(*codec, vector, 256, {1, static_cast<std::uint64_t>(round), 9});
    const auto decoded = test_values::decode(*codec, encoded);
    for (std::size_t i = 0; i < vector.size(); ++i) sum[i] += static_cast<double>(decoded[i]);
    for (std::size_t i = 1; i < vector.size(); ++i) {
      neighbours += static_cast<double>(decoded[i] - vector[i]) * static_cast<double>(decoded[i - 1] - vector[i - 1]);
    }
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
  EXPECT_NEAR(chi_squared, counted, 4.5 * std::sqrt(2.0 * counted));  // neither biased nor correlated between rounds
  // Nor between neighbours: a product of two errors has a variance of at most 1/16 of a step to the fourth.
  EXPECT_LT(std::fabs(neighbours) / (scale * scale), 4.5 * std::sqrt(255.0 * kRounds / 16));
}

// The same where it is tightest: next to whole multiples of the scale, with the random bits that go furthest.
TEST_P(IntCodecs, ErrorStaysBelowTheScaleForTheRarestBits) {
  for (const float value : multiples_and_neighbours()) {
    for (const float amax : {std::fabs(value), 1.0F, 1.37F, 1.999F, 2.0F}) {
      if (amax == 0 || std::fabs(value) > amax) continue;
      const float scale = ops::block_scale(ops::float_bits(amax), most());
      for (const std::int32_t multiple : {static_cast<std::int32_t>(value / scale), 0}) {
        float at = static_cast<float>(multiple) * scale;
        for (int step = 0; step < 7; ++step, at = std::nextafter(at, value)) {
          if (std::fabs(at) > amax) break;
          for (const std::uint16_t random : {std::uint16_t{0}, std::uint16_t{0xffff}}) {
            const auto code = static_cast<std::int8_t>(ops::round_stochastic(at, ops::kFineUnits / scale, random));
            const double decoded = static_cast<double>(ops::int8_value(code, scale));
            ASSERT_LT(std::fabs(decoded - static_cast<double>(at)), static_cast<double>(scale)) << at << " of " << amax;
          }
        }
      }
    }
  }
}

// One unit is 2^-14 of a scale, and the upper 14 of the bits decide.
TEST(IntRounding, OneUnitGoesUpForTheLastOfTheRandomBits) {
  EXPECT_EQ(ops::round_stochastic(0x1p-14F, 0x1p14F, 0xfffc), 1);
  EXPECT_EQ(ops::round_stochastic(0x1p-14F, 0x1p14F, 0xfffb), 0);
  EXPECT_EQ(ops::round_stochastic(-0x1p-14F, 0x1p14F, 3), -1);
  EXPECT_EQ(ops::round_stochastic(-0x1p-14F, 0x1p14F, 4), 0);
  EXPECT_EQ(ops::round_stochastic(0x1.ffp-16F, 0x1p14F, 0xffff), 0);  // less than half a unit is none
}

// P(up) is the fraction in units of 2^-14, exactly: over all random bits.
TEST(IntRounding, GoesUpAsOftenAsTheFractionSays) {
  for (const float value : {0.0F, 0x1p-14F, 0.25F, 0.3F, 0.999F, 1.0F, -0.25F, -126.7F, 126.7F}) {
    std::int64_t sum = 0;
    for (std::uint32_t random = 0; random < 65'536; ++random) {
      sum += ops::round_stochastic(value, ops::kFineUnits, static_cast<std::uint16_t>(random));
    }
    EXPECT_NEAR(static_cast<double>(sum) / 65'536, static_cast<double>(value), 0x1p-15) << value;
  }
}

// The rule of the formats page, value by value, in chunks and blocks that begin anywhere.
TEST_P(IntCodecs, CodesFollowTheRuleAtEveryCoordinate) {
  constexpr std::size_t kBlock = 130;
  constexpr std::size_t kChunk = 1'001;
  const auto vector = test_values::normals(5'000, 7);
  for (const bool stochastic : {true, false}) {
    const auto codec =
        test_values::codec_of(GetParam() + ":block=130,rounding=" + (stochastic ? "stochastic" : "nearest"));
    const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, kChunk, {5, 6, 7}));
    for (std::size_t i = 0; i < vector.size(); ++i) {
      const std::size_t chunk = i / kChunk * kChunk;
      const std::size_t first = chunk + (i - chunk) / kBlock * kBlock;
      float amax = 0;
      for (std::size_t j = first; j < std::min({first + kBlock, chunk + kChunk, vector.size()}); ++j) {
        amax = std::max(amax, std::fabs(vector[j]));
      }
      const float scale = amax / most();
      double code = std::nearbyint(static_cast<double>(vector[i] * (1.0F / scale)));
      if (stochastic) {
        const double units = std::nearbyint(static_cast<double>(vector[i] * (16'384.0F / scale)));
        code = std::floor((units + std::floor(reference::random_bits(5, 6, 7, i) / 4.0)) / 16'384.0);
      }
      ASSERT_EQ(decoded[i], static_cast<float>(code) * scale) << i;
    }
  }
}

// A scale may make a code infinite that does not occur: only the codes that occur decide, and they are summed exactly.
TEST_P(IntCodecs, SumsSmallCodesOfAHugeScale) {
  const auto codec = test_values::codec_of(GetParam() + ":block=128");
  std::vector<float> vector(500);
  for (std::size_t i = 0; i < vector.size(); ++i) vector[i] = static_cast<float>(i % 4) - 2;
  vector[499] = most();  // a scale of 1 in the last block
  auto encoded = test_values::encode(*codec, vector, 500);
  const ByteSpan bytes = encoded.chunks[0].span();
  for (std::size_t block = 0; block < 3; ++block) store_le<std::uint32_t>(encoded.chunks[0].data() + 8 + 4 * block, 0);
  store_le<std::uint32_t>(encoded.chunks[0].data() + 8 + 4 * 3, 0x7e800000U);  // 2^126
  std::vector<std::int64_t> sum(500, 1);
  const auto before = sum;
  EXPECT_FALSE(codec->decode_accumulate_chunk(bytes, 1, -100, sum).ok());
  EXPECT_EQ(sum, before);
  encoded.chunks[0].data()[bytes.size() - 1] = std::byte{0};  // the greatest code (int4: and the one before)
  ASSERT_TRUE(codec->decode_accumulate_chunk(bytes, 1, -100, sum).ok());
  for (std::size_t i = 384; i < 498; ++i) {
    ASSERT_EQ(sum[i], 1 + static_cast<std::int64_t>(vector[i]) * (std::int64_t{1} << 26)) << i;
  }
}

TEST_P(IntCodecs, StreamsOfSitesRoundsAndRunsDiffer) {
  const auto codec = test_values::codec_of(GetParam());
  const auto vector = test_values::normals(256, 5);
  std::vector<std::string> seen;
  for (const StreamKey key : {StreamKey{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
    seen.push_back(to_hex(test_values::encode(*codec, vector, 256, key).chunks[0].span()));
    EXPECT_EQ(seen.back(), to_hex(test_values::encode(*codec, vector, 256, key).chunks[0].span()));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

// Random bits follow the coordinate, so they do not depend on how the vector is cut into chunks.
TEST_P(IntCodecs, ChunkingOnBlockBoundsChangesNoValue) {
  const auto codec = test_values::codec_of(GetParam() + ":block=300");
  const auto vector = test_values::normals(10'000, 6);
  const auto whole = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
  EXPECT_EQ(whole, test_values::decode(*codec, test_values::encode(*codec, vector, 900)));
}

TEST_P(IntCodecs, RefusesToEncodeWhatIsNotFinite) {
  const auto codec = test_values::codec_of(GetParam());
  const VectorSchema schema{.layout = {.value_count = 600, .chunk_values = 300}, .tensors = {}};
  std::vector<float> vector(600, 1.0F);
  vector[450] = std::numeric_limits<float>::quiet_NaN();
  const EncodePlan plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
  Buffer out(codec->encoded_bytes_max(300));
  EXPECT_TRUE(codec->encode_chunk(plan, 0, std::span(vector).first(300), out.span()).ok());
  const auto refused = codec->encode_chunk(plan, 1, std::span(vector).last(300), out.span());
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().message, GetParam() + " cannot encode: value 450 is NaN, expected a finite number");
}

}  // namespace
}  // namespace fluvial::kernels
