#include "kernels/ops/qsgd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/codecs/elias.h"
#include "kernels/cpu/qsgd_loops.h"
#include "kernels/ops/terngrad.h"
#include "kernels/reference/quantised.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;

std::vector<std::vector<float>> vectors() {
  std::vector<float> spike(1'000, 0.0F);
  spike[500] = -7.25F;
  return {test_values::normals(10'000, 1),
          test_values::adversarial(5'000, 2, 1024.0F),
          test_values::adversarial(5'000, 3, std::numeric_limits<float>::max()),
          test_values::adversarial(3'000, 4, 0x1p-110F),
          std::vector<float>(3'000, std::numeric_limits<float>::max()),
          std::vector<float>(300, 0x1p-149F),
          spike};
}

TEST(Qsgd, EncodesAsTheReferenceDoes) {
  for (const auto& [block, levels, elias] : {std::tuple{256U, 127U, false},
                                             {128U, 1U, false},
                                             {300U, 5U, false},
                                             {131U, 64U, false},
                                             {2048U, 3U, false},
                                             {256U, 16U, true},
                                             {2047U, 127U, true},
                                             {128U, 127U, true}}) {
    const auto codec =
        make_codec({.kind = CodecKind::kQsgd, .block_values = block, .levels = levels, .elias = elias}).value();
    for (const auto& vector : vectors()) {
      const auto encoded = test_values::encode(*codec, vector, 2'900, {7, 8, 9});
      for (std::size_t i = 0; i < encoded.chunks.size(); ++i) {
        const auto expected = reference::encode_qsgd(encoded.plan.layout.of(std::span(vector), i), block, levels, elias,
                                                     {7, 8, 9, 2'900 * i});
        ASSERT_EQ(to_hex(encoded.chunks[i].span()), to_hex(expected)) << block << " " << levels << " " << elias;
      }
    }
  }
}

TEST(TernGrad, EncodesAsTheReferenceDoes) {
  for (const auto& [block, clip] : {std::pair{256U, 0.0}, {128U, 2.5}, {300U, 1.0}, {2047U, 0.0}, {2048U, 2.5}}) {
    const auto codec = make_codec({.kind = CodecKind::kTernGrad, .block_values = block, .clip = clip}).value();
    for (const auto& vector : vectors()) {
      const auto encoded = test_values::encode(*codec, vector, 2'900, {7, 8, 9});
      for (std::size_t i = 0; i < encoded.chunks.size(); ++i) {
        const auto expected =
            reference::encode_terngrad(encoded.plan.layout.of(std::span(vector), i), block, clip, {7, 8, 9, 2'900 * i});
        ASSERT_EQ(to_hex(encoded.chunks[i].span()), to_hex(expected)) << block << " " << clip;
      }
    }
  }
}

// Whatever the values, the error is below one step, and decoded values are finite.
TEST(Qsgd, ErrorStaysBelowTheStepOfItsBlock) {
  for (const std::uint32_t levels : {1U, 2U, 7U, 16U, 100U, 127U}) {
    const auto codec = make_codec({.kind = CodecKind::kQsgd, .levels = levels}).value();
    for (const auto& vector : vectors()) {
      const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
      for (std::size_t first = 0; first < vector.size(); first += 256) {
        const std::size_t end = std::min(first + 256, vector.size());
        long double squares = 0;
        for (std::size_t i = first; i < end; ++i) squares += static_cast<long double>(vector[i]) * vector[i];
        const double step = std::max(0x1p-112, static_cast<double>(std::sqrt(squares)) / levels) * (1 + 0x1p-22) *
                            (squares > 0 ? 1 : 0);
        for (std::size_t i = first; i < end; ++i) {
          ASSERT_TRUE(std::isfinite(decoded[i]));
          const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(vector[i]));
          ASSERT_TRUE(squares == 0 ? error == 0 : error < step) << vector[i] << " " << levels;
        }
      }
    }
  }
}

// Every count of levels, at the ends of the range of norms: levels * step is finite and covers the norm where fp32 can.
TEST(Qsgd, StepsAtTheEndsOfTheRange) {
  constexpr auto kGreatest = static_cast<double>(std::numeric_limits<float>::max());
  for (std::int32_t levels = 1; levels <= 127; ++levels) {
    EXPECT_EQ(ops::qsgd_step(0, levels), 0.0F);
    EXPECT_EQ(ops::qsgd_step(0x1p-298, levels), 0x1p-112F);
    for (const double norm : {1e-30, 0.1, 1.0, 3.0, 1e30, kGreatest / 2}) {
      const double covered = levels * static_cast<double>(ops::qsgd_step(norm * norm, levels));
      EXPECT_GE(covered, norm * (1 - 0x1p-50));
      EXPECT_LE(covered, norm * (1 + 0x1p-22));
    }
    for (const double norm : {kGreatest, 2 * kGreatest, 45 * kGreatest}) {
      const float step = ops::qsgd_step(norm * norm, levels);
      EXPECT_TRUE(std::isfinite(static_cast<float>(levels) * step)) << levels;
      EXPECT_GE(levels * static_cast<double>(step), kGreatest * (1 - 0x1p-22));
      for (const std::uint16_t random : {std::uint16_t{0}, std::uint16_t{0xffff}}) {
        const float inverse = ops::kFineUnits / step;
        EXPECT_LE(ops::qsgd_code(std::numeric_limits<float>::max(), inverse, levels, random), levels);
        EXPECT_GE(ops::qsgd_code(-std::numeric_limits<float>::max(), inverse, levels, random), -levels);
      }
    }
  }
}

struct Moments {
  std::vector<double> mean;
  double squared_error = 0;  // the mean of its sum
};

Moments moments_of(const Codec& codec, const std::vector<float>& vector, int rounds) {
  Moments moments{.mean = std::vector<double>(vector.size(), 0.0)};
  for (int round = 0; round < rounds; ++round) {
    const auto encoded = test_values::encode(codec, vector, vector.size(), {1, static_cast<std::uint64_t>(round), 9});
    const auto decoded = test_values::decode(codec, encoded);
    for (std::size_t i = 0; i < vector.size(); ++i) {
      const double error = static_cast<double>(decoded[i]) - static_cast<double>(vector[i]);
      moments.mean[i] += static_cast<double>(decoded[i]) / rounds;
      moments.squared_error += error * error / rounds;
    }
  }
  return moments;
}

// Each mean is within 4.5 standard deviations of its value, and together they vary as they should. `step` and
// `remainder` say how far apart the two possible values are and where between them the value lies.
void expect_unbiased(const std::vector<float>& vector, const Moments& moments, double step, int rounds) {
  double chi_squared = 0;
  int counted = 0;
  for (std::size_t i = 0; i < vector.size(); ++i) {
    const double t = std::fabs(static_cast<double>(vector[i])) / step;
    const double fraction = t - std::floor(t);
    if (fraction < 0.01 || fraction > 0.99) continue;
    const double deviation = step * std::sqrt(fraction * (1 - fraction) / rounds);
    const double z = (moments.mean[i] - static_cast<double>(vector[i])) / deviation;
    EXPECT_LT(std::fabs(z), 4.5) << vector[i];
    chi_squared += z * z;
    ++counted;
  }
  EXPECT_GT(counted, static_cast<int>(vector.size()) / 2);
  EXPECT_NEAR(chi_squared, counted, 4.5 * std::sqrt(2.0 * counted));
}

TEST(Qsgd, IsUnbiasedWithinTheVarianceOfThePaper) {
  constexpr int kRounds = 10'000;
  const auto vector = test_values::normals(256, 77);
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * static_cast<double>(value);
  for (const unsigned levels : {1U, 4U, 16U, 127U}) {
    const auto codec = make_codec({.kind = CodecKind::kQsgd, .levels = levels}).value();
    const Moments moments = moments_of(*codec, vector, kRounds);
    expect_unbiased(vector, moments, std::sqrt(squares) / levels, kRounds);
    const double d = static_cast<double>(vector.size());
    const double s = levels;
    EXPECT_LE(moments.squared_error, std::min(d / (s * s), std::sqrt(d) / s) * squares) << levels;
    EXPECT_GT(moments.squared_error, 0.1 * std::min(d / (s * s), std::sqrt(d) / s) * squares) << levels;
  }
}

TEST(TernGrad, IsUnbiasedWithoutClipping) {
  constexpr int kRounds = 10'000;
  const auto vector = test_values::normals(256, 78);
  const double scale =
      std::fabs(static_cast<double>(*std::ranges::max_element(vector, {}, [](float v) { return std::fabs(v); })));
  expect_unbiased(vector, moments_of(*codec_of("terngrad"), vector, kRounds), scale, kRounds);
}

TEST(TernGrad, ClippingLimitsTheScale) {
  auto vector = test_values::normals(256, 79);
  vector[17] = 100.0F;
  double squares = 0;
  for (const float value : vector) squares += static_cast<double>(value) * static_cast<double>(value);
  const auto limit = static_cast<float>(2.5 * std::sqrt(squares / 256));
  const auto decoded = test_values::decode(*codec_of("terngrad:clip=2.5"),
                                           test_values::encode(*codec_of("terngrad:clip=2.5"), vector, 256));
  for (const float value : decoded) EXPECT_TRUE(value == 0 || std::fabs(value) == limit);
  EXPECT_EQ(decoded[17], limit);               // beyond the scale: always sent
  const std::vector<float> same(256, -3.25F);  // no deviation about its mean; still kept
  EXPECT_EQ(
      test_values::decode(*codec_of("terngrad:clip=1"), test_values::encode(*codec_of("terngrad:clip=1"), same, 256)),
      same);
}

TEST(TernGrad, DigitsOfEveryByte) {
  for (std::int32_t number = -121; number <= 121; ++number) {
    std::int32_t sum = 0;
    std::int32_t weight = 1;
    for (std::int32_t place = 0; place < ops::kTernaryDigits; ++place, weight *= 3) {
      const std::int32_t digit = ops::ternary_digit(static_cast<std::int8_t>(number), ops::ternary_place(place));
      EXPECT_TRUE(digit >= -1 && digit <= 1);
      sum += weight * digit;
    }
    EXPECT_EQ(sum, number);
  }
}

TEST(Quantised, RefuseToEncodeWhatIsNotFinite) {
  for (const char* text : {"qsgd", "qsgd:encoding=elias,levels=4", "terngrad", "terngrad:clip=2.5"}) {
    const auto codec = codec_of(text);
    const VectorSchema schema{.layout = {.value_count = 600, .chunk_values = 300}, .tensors = {}};
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      std::vector<float> vector(600, 1.0F);
      vector[450] = poison;
      const EncodePlan plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
      Buffer out(codec->encoded_bytes_max(300));
      std::vector<float> residual(300);
      const auto last = std::span<const float>(vector).last(300);
      EXPECT_TRUE(codec->encode_chunk(plan, 0, std::span(vector).first(300), out.span()).ok());
      const auto refused = codec->encode_chunk(plan, 1, last, out.span());
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
      EXPECT_THAT(refused.error().message, ::testing::HasSubstr("cannot encode: value 450 is "));
      EXPECT_FALSE(codec->encode_residual_chunk(plan, 1, last, out.span(), residual).ok());
    }
  }
}

// The default number of levels for a block of 256: what Elias codes are for.
TEST(Qsgd, EliasIsShorterWhereLevelsAreFewAndNeverLonger) {
  const auto normal = test_values::normals(1 << 16, 80);
  const auto size = [&](const char* text, const std::vector<float>& vector) {
    return static_cast<double>(test_values::encode(*codec_of(text), vector, vector.size()).chunks[0].size());
  };
  EXPECT_LT(size("qsgd:levels=16,encoding=elias", normal), 0.6 * size("qsgd:levels=16", normal));
  EXPECT_LT(size("qsgd:levels=127,encoding=elias", normal), 0.9 * size("qsgd:levels=127", normal));
  std::vector<float> spikes(1'024, 0.0F);  // one full level and else zeros; and all levels low
  spikes[0] = 1.0F;
  EXPECT_LT(size("qsgd:encoding=elias", spikes), 0.3 * size("qsgd", spikes));
  const std::vector<float> one{1.0F};  // the longest code, and a length: longer than packed, so packed
  EXPECT_EQ(size("qsgd:encoding=elias", one), size("qsgd", one));
  EXPECT_LE(size("qsgd:block=128,levels=1,encoding=elias", std::vector<float>(7, 1.0F)),
            size("qsgd:block=128,levels=1", std::vector<float>(7, 1.0F)));
}

TEST(Elias, CodesOfEveryLevelRoundTrip) {
  std::vector<std::int8_t> codes;
  for (int code = -127; code <= 127; ++code) codes.push_back(static_cast<std::int8_t>(code));
  Rng rng(6);
  for (int i = 0; i < 1'000; ++i) codes.push_back(static_cast<std::int8_t>(static_cast<int>(rng.below(5)) - 2));
  for (std::size_t first = 0; first < 300; ++first) {
    const auto some = std::span(codes).subspan(first);
    std::vector<std::byte> bytes(elias_bytes_max(some.size()) + 8);
    bytes.resize(elias_encode(some, bytes.data()));
    std::vector<std::int8_t> decoded(some.size());
    ASSERT_EQ(elias_decode(bytes, 127, decoded).what, "");
    ASSERT_TRUE(std::ranges::equal(decoded, some));
    ASSERT_NE(elias_decode(ByteSpan(bytes).first(bytes.size() - 1), 127, decoded).what, "");
    decoded.push_back(0);
    bytes.push_back(std::byte{0});
    ASSERT_NE(elias_decode(bytes, 127, decoded).what, "");  // one code too few
  }
}

TEST(QsgdLoops, EveryWidthPacksAndUnpacksAlikeOnEveryTarget) {
  Rng rng(7);
  for (std::uint32_t width = 2; width <= 8; ++width) {
    for (const std::size_t n : {0U, 1U, 7U, 8U, 9U, 63U, 64U, 65U, 300U, 2'048U}) {
      std::vector<std::int8_t> codes(n);
      for (auto& code : codes) {
        code = static_cast<std::int8_t>(static_cast<int>(rng.below(1U << width)) - (1 << (width - 1)));
      }
      std::vector<std::byte> expected((n * width + 7) / 8, std::byte{0});
      for (std::size_t bit = 0; bit < n * width; ++bit) {
        const auto value = static_cast<unsigned>(static_cast<std::uint8_t>(codes[bit / width]));
        expected[bit / 8] |= static_cast<std::byte>((value >> (bit % width) & 1U) << (bit % 8));
      }
      for (const cpu::Target target : cpu::supported_targets()) {
        std::vector<std::byte> packed(expected.size(), std::byte{0xaa});
        cpu::qsgd_loops(target).pack(codes.data(), n, width, packed.data());
        ASSERT_EQ(packed, expected) << cpu::target_name(target) << " " << width << " " << n;
        std::vector<std::int8_t> unpacked(n);
        cpu::qsgd_loops(target).unpack(packed.data(), n, width, unpacked.data());
        ASSERT_EQ(unpacked, codes) << cpu::target_name(target) << " " << width << " " << n;
        const auto magnitude = [](int code) { return static_cast<std::uint32_t>(std::abs(code)); };
        std::uint32_t most = 0;
        for (const std::int8_t code : codes) most = std::max(most, magnitude(code));
        EXPECT_EQ(cpu::qsgd_loops(target).most(codes.data(), n), most);
      }
    }
  }
}

}  // namespace
}  // namespace fluvial::kernels
