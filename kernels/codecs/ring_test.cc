#include "kernels/ring.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>

#include "kernels/fixed.h"
#include "kernels/ops/ring.h"
#include "kernels/reference/reference.h"
#include "kernels/reference/ring.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using ::testing::HasSubstr;

std::string hex_of(std::string_view text, std::span<const float> values) {
  return to_hex(test_values::encode(*codec_of(text), values, values.size()).chunks[0].span());
}

// docs/formats/codecs-ring.md shows the first of them.
TEST(Ring, GoldenBytes) {
  const std::vector<float> values = {0.05F, -0.001F, 0x1p-12F, 1.0F, 0x1.8p-11F};
  EXPECT_EQ(hex_of("ring:bits=8,max=0.05,rounding=nearest", values), "01080b000000000066fe007f02");
  EXPECT_EQ(hex_of("ring:bits=4,max=0.05,rounding=nearest", values), "0104070000000000067000");
  EXPECT_EQ(hex_of("ring:bits=16,max=0.05,rounding=nearest", values), "01101300000000006666f4fd8000ff7f8001");
  EXPECT_EQ(hex_of("ring:bits=24,max=0.05,rounding=nearest", values), "01181b0000000000666666b6f3fd008000ffff7f008001");
  EXPECT_EQ(hex_of("ring:bits=8,max=1000,rounding=nearest", std::vector<float>{-1000.0F, 12.0F}),
            "0108fdff000000008302");
}

TEST(Ring, IsWrittenOutInFullAndSaysWhatItNeeds) {
  EXPECT_EQ(to_string(parse_codec("ring:max=0.05").value()), "ring:bits=8,max=0.05,rounding=stochastic");
  EXPECT_EQ(to_string(parse_codec("ring:max=1e-3,bits=24,rounding=nearest,zstd=1").value()),
            "ring:bits=24,max=0.001,rounding=nearest,zstd=1");
  const std::pair<const char*, const char*> cases[] = {
      {"ring",
       "max is missing or 0: expected the greatest magnitude that is sent, above 0, which all sites share, as in "
       "max=0.05"},
      {"ring:bits=8", "max is missing"},
      {"ring:max=0", "or 0: expected the greatest magnitude that is sent, above 0"},
      {"ring:bits=1,max=1", "bits is 1, expected 2 to 24"},
      {"ring:bits=25,max=1", "bits is 25, expected 2 to 24"},
      {"ring:max=-1", "max is -1, expected"},
      {"ring:max=nan", "max is nan, expected"},
      {"ring:max=1e31", "expected"},
      {"ring:max=1e-31", "expected"},
      {"ring:max=much", "max to be a number"},
      {"ring:block=256,max=1", "expected bits, max, rounding"},
  };
  for (const auto& [text, message] : cases) {
    const Result<CodecSpec> spec = parse_codec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.error().code, Code::kInvalidArgument);
    EXPECT_THAT(spec.error().message, HasSubstr(message)) << text;
  }
}

// The most fraction bits with which every value up to max is sent.
TEST(Ring, TheScaleIsTheFinestThatClipsNothingUpToMax) {
  for (std::uint32_t bits = ops::kRingBitsMin; bits <= ops::kRingBitsMax; ++bits) {
    for (const double base : {1.0, 0.05, 127.0, 127.0 / 128, 0x1.fffffep-1, 1e-9, 3e20, 0x1p-100, 0x1p100}) {
      for (const double max : {base, std::nextafter(base, 1.0), std::nextafter(base, 2e30)}) {
        if (max < 0x1p-100 || max > 0x1p100) continue;
        const CodecSpec spec = {.kind = CodecKind::kRing, .bits = bits, .max = max};
        const int fraction_bits = reference::ring_fraction_bits(bits, max);
        EXPECT_EQ(ring_fraction_bits(spec), fraction_bits) << bits << " bits, " << max;
        EXPECT_GE(ring_value_max(spec), max);
        EXPECT_LT(ring_value_max(spec), 2 * max);
      }
    }
  }
}

class EachRing : public ::testing::TestWithParam<std::uint32_t> {
 protected:
  std::string text(double max, std::string_view rounding) const {
    return "ring:bits=" + std::to_string(GetParam()) + ",max=" + std::to_string(max) +
           ",rounding=" + std::string(rounding);
  }
};

INSTANTIATE_TEST_SUITE_P(Bits, EachRing, ::testing::Values(2U, 3U, 4U, 5U, 8U, 9U, 13U, 16U, 17U, 23U, 24U));

// In chunks that begin anywhere, also far beyond what is sent and far below a step.
TEST_P(EachRing, CodesFollowTheRuleAtEveryCoordinate) {
  for (const double max : {0.75, 1.5, 100.0, 0.001}) {
    auto vector = test_values::normals(5'000, 7);
    const auto wild = test_values::adversarial(3'000, 8, std::numeric_limits<float>::max());
    vector.insert(vector.end(), wild.begin(), wild.end());
    for (std::size_t i = 0; i < 600; ++i) {  // halves of steps, where ties are broken
      vector.push_back(std::ldexp(static_cast<float>(i) - 300.0F, -1 - reference::ring_fraction_bits(GetParam(), max)));
    }
    const int fraction_bits = reference::ring_fraction_bits(GetParam(), max);
    for (const bool stochastic : {true, false}) {
      const auto codec = codec_of(text(max, stochastic ? "stochastic" : "nearest"));
      const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 3'001, {5, 6, 7}));
      for (std::size_t i = 0; i < vector.size(); ++i) {
        const auto random = stochastic ? std::optional(reference::random_bits(5, 6, 7, i)) : std::nullopt;
        const std::int64_t code = reference::ring_code(vector[i], GetParam(), fraction_bits, random);
        ASSERT_EQ(static_cast<double>(decoded[i]), std::ldexp(static_cast<double>(code), -fraction_bits))
            << vector[i] << " at " << i << ", max " << max;
      }
    }
  }
}

TEST_P(EachRing, IsOffByLessThanAStepUpToMax) {
  const double max = 3.0;
  for (const char* rounding : {"stochastic", "nearest"}) {
    const auto codec = codec_of(text(max, rounding));
    const double step = std::ldexp(1.0, -ring_fraction_bits(codec->spec()));
    const auto vector = test_values::adversarial(20'000, 9, 3.0F);
    const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
    for (std::size_t i = 0; i < vector.size(); ++i) {
      const double error = std::fabs(static_cast<double>(decoded[i]) - static_cast<double>(vector[i]));
      ASSERT_LE(error, codec->spec().stochastic ? step : step / 2) << vector[i];
      if (codec->spec().stochastic) {
        ASSERT_LT(error, step) << vector[i];
      }
    }
  }
}

// What a sum holds at ring's own scale is weight times code, whichever weight: nothing is rounded, and a partial is as
// narrow as these whole numbers are.
TEST_P(EachRing, SumsAreWholeNumbersOfSteps) {
  const auto codec = codec_of(text(0.3, "stochastic"));
  const int fraction_bits = ring_fraction_bits(codec->spec());
  const auto vector = test_values::normals(3'000, 10, 0.2F);
  const auto encoded = test_values::encode(*codec, vector, vector.size());
  const auto decoded = reference::decode("ring", encoded.chunks[0].span(), vector.size()).value();
  for (const std::uint32_t weight : {1U, 3U, 1'000U, 65'537U, kWeightEnd - 1}) {
    std::vector<std::int64_t> sum(vector.size());
    ASSERT_TRUE(codec->decode_accumulate_chunk(encoded.chunks[0].span(), weight, fraction_bits, sum).ok());
    std::uint64_t most = 0;
    for (std::size_t i = 0; i < sum.size(); ++i) {
      const auto code = static_cast<std::int64_t>(std::ldexp(decoded[i], fraction_bits));
      ASSERT_EQ(sum[i], code * weight);
      most = std::max(most, static_cast<std::uint64_t>(std::abs(sum[i])));
    }
    std::vector<std::byte> packed(packed_bytes_max(sum.size()));
    const std::size_t width = std::bit_width(most) / 8 + 1;
    EXPECT_LE(pack_chunk(sum, packed), 16 + sum.size() * width);
  }
}

TEST_P(EachRing, RefusesToEncodeWhatIsNotFinite) {
  const auto codec = codec_of(text(1.0, "stochastic"));
  const VectorSchema schema{.layout = {.value_count = 6'000, .chunk_values = 3'000}, .tensors = {}};
  for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
    std::vector<float> vector(6'000, 1.0F);
    vector[5'500] = poison;
    const EncodePlan plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
    Buffer out(codec->encoded_bytes_max(3'000));
    EXPECT_TRUE(codec->encode_chunk(plan, 0, std::span(vector).first(3'000), out.span()).ok());
    const auto refused = codec->encode_chunk(plan, 1, std::span(vector).last(3'000), out.span());
    ASSERT_FALSE(refused.ok());
    EXPECT_THAT(refused.error().message, HasSubstr("ring cannot encode: value 5500 is "));
  }
}

// P(up) is the part of a step in units of 2^-14, exactly: over all random bits, for small codes and great ones.
TEST(Ring, GoesUpAsOftenAsThePartSays) {
  for (const float steps : {0.0F, 0x1p-14F, 0.25F, 0.3F, 0.999F, 1.0F, -0.25F, -126.7F, 126.7F, 32766.125F, -4194303.5F,
                            8388606.5F, -8388607.0F}) {
    std::int64_t sum = 0;
    for (std::uint32_t random = 0; random < 65'536; ++random) {
      sum += ops::ring_stochastic(steps, static_cast<std::uint16_t>(random));
    }
    EXPECT_NEAR(static_cast<double>(sum) / 65'536, static_cast<double>(steps), 0x1p-15) << steps;
  }
}

// Neither the greatest random bits nor ties go beyond the greatest code.
TEST(Ring, NoCodeIsBeyondTheGreatest) {
  for (std::uint32_t bits = ops::kRingBitsMin; bits <= ops::kRingBitsMax; ++bits) {
    const std::int32_t most = ops::ring_most(bits);
    const auto limit = static_cast<float>(most);
    for (const float value : {limit, std::nextafter(limit, 0.0F), limit - 0.5F, limit + 1.0F, 3e38F,
                              std::numeric_limits<float>::infinity()}) {
      for (const float each : {value, -value}) {
        const float steps = ops::ring_steps(each, 1.0F, limit);
        EXPECT_LE(std::abs(ops::ring_nearest(steps)), most);
        EXPECT_LE(std::abs(ops::ring_stochastic(steps, 0xffff)), most);
        EXPECT_LE(std::abs(ops::ring_stochastic(steps, 0)), most);
      }
    }
  }
}

// With enough bits ring is the fixed point sum: its code is the term of a weight of 1 at that scale.
TEST(Ring, WithEnoughBitsItIsFixedPoint) {
  const auto ring = codec_of("ring:bits=24,max=8,rounding=nearest");
  const auto plain = codec_of("fp32");
  const int scale = ring_fraction_bits(ring->spec());
  EXPECT_EQ(scale, 19);
  auto vector = test_values::normals(20'000, 12);
  const auto small = test_values::adversarial(20'000, 13, 8.0F);
  vector.insert(vector.end(), small.begin(), small.end());
  const std::size_t chunk_values = 1 << 20;
  const auto by_ring = test_values::encode(*ring, vector, chunk_values);
  const auto by_plain = test_values::encode(*plain, vector, chunk_values);
  std::vector<std::int64_t> ring_sum(vector.size(), 5);
  std::vector<std::int64_t> plain_sum(vector.size(), 5);
  ASSERT_TRUE(ring->decode_accumulate_chunk(by_ring.chunks[0].span(), 1, scale, ring_sum).ok());
  ASSERT_TRUE(plain->decode_accumulate_chunk(by_plain.chunks[0].span(), 1, scale, plain_sum).ok());
  EXPECT_EQ(ring_sum, plain_sum);
}

// A tree of three tiers at ring's scale commits what a plain flat sum of the same quantised values does at the usual
// scale, bit for bit, and its partials are narrower.
TEST(Ring, CommitsAsAPlainSumOfTheSameValues) {
  constexpr std::size_t kSites = 16;
  constexpr std::size_t kValues = 4'000;
  constexpr int kUsualScale = 40;
  const auto ring = codec_of("ring:bits=8,max=0.05");
  const auto plain = codec_of("fp32");
  const int scale = ring_fraction_bits(ring->spec());
  const std::vector<std::uint32_t> weights = {1, 5, 100, 17, 31, 64, 3, 9, 12, 1, 2, 8, 44, 90, 61, 7};
  const auto total = std::accumulate(weights.begin(), weights.end(), std::uint64_t{0});
  std::vector<std::int64_t> root(kValues), flat(kValues), region(kValues);
  std::size_t ring_bytes = 0;
  for (std::size_t site = 0; site < kSites; ++site) {
    const auto vector = test_values::normals(kValues, 100 + site, 0.02F);
    const auto encoded = test_values::encode(*ring, vector, kValues, {1, 2, static_cast<std::uint32_t>(site)});
    ASSERT_TRUE(ring->decode_accumulate_chunk(encoded.chunks[0].span(), weights[site], scale, region).ok());
    const auto quantised = test_values::decode(*ring, encoded);
    const auto whole = test_values::encode(*plain, quantised, kValues);
    ASSERT_TRUE(plain->decode_accumulate_chunk(whole.chunks[0].span(), weights[site], kUsualScale, flat).ok());
    if (site % 4 != 3) continue;
    std::vector<std::byte> packed(packed_bytes_max(kValues));
    packed.resize(pack_chunk(region, packed));
    ring_bytes = std::max(ring_bytes, packed.size());
    ASSERT_TRUE(merge_chunk(packed, root).ok());
    std::ranges::fill(region, 0);
  }
  EXPECT_EQ(ring_bytes, 16 + 2 * kValues) << "two bytes a value";
  std::vector<float> by_ring(kValues), by_plain(kValues);
  mean_of_sums(root, scale, total, by_ring);
  mean_of_sums(flat, kUsualScale, total, by_plain);
  EXPECT_EQ(test_values::bits_of(by_ring), test_values::bits_of(by_plain));
}

TEST(Ring, StreamsOfSitesRoundsAndRunsDiffer) {
  const auto codec = codec_of("ring:max=3");
  const auto vector = test_values::normals(256, 5);
  std::vector<std::string> seen;
  for (const StreamKey key : {StreamKey{1, 1, 1}, {2, 1, 1}, {1, 2, 1}, {1, 1, 2}}) {
    seen.push_back(to_hex(test_values::encode(*codec, vector, 256, key).chunks[0].span()));
  }
  std::sort(seen.begin(), seen.end());
  EXPECT_EQ(std::unique(seen.begin(), seen.end()), seen.end());
}

TEST(Ring, HostileBytesAreRefusedWithAReason) {
  const auto refused = [](std::string_view text, std::string_view hex, std::size_t value_count,
                          std::string_view reason) {
    const auto codec = codec_of(text);
    const Buffer buffer = from_hex(hex).value();
    const ByteSpan bytes = buffer.span();
    const auto screened = codec->screen_chunk(bytes, value_count, 0);
    ASSERT_FALSE(screened.ok()) << hex;
    EXPECT_EQ(screened.error().code, Code::kDataLoss);
    EXPECT_THAT(screened.error().message, HasSubstr(std::string(reason)));
    std::vector<std::int64_t> sum(value_count, 3);
    EXPECT_FALSE(codec->decode_accumulate_chunk(bytes, 1, 0, sum).ok());
    EXPECT_EQ(sum, std::vector<std::int64_t>(value_count, 3));
  };
  const std::string eight = "ring:bits=8,max=0.05";
  refused(eight, "01080b000000000066fe007f", 5, "12 bytes, expected 13");
  refused(eight, "02080b000000000066fe007f", 4, "another version");
  refused(eight, "01080b000000010066fe007f", 4, "another version");
  refused(eight, "01070b000000000066fe007f", 4, "codes of 7 bits in steps of 2^-11, expected 8 bits and 2^-11");
  refused(eight, "01080a000000000066fe007f", 4, "codes of 8 bits in steps of 2^-10, expected 8 bits and 2^-11");
  refused(eight, "0108f5ff0000000066fe007f", 4, "in steps of 2^11");
  refused(eight, "01080b000000000066fe8000", 4, "a code of magnitude 128 among values 0 to 3, expected at most 127");
  refused("ring:bits=6,max=0.05", "010609000000000020", 1,
          "a code of magnitude 32 among values 0 to 0, expected at most 31");
  refused("ring:bits=3,max=0.05", "0103050000000000c1", 2, "a code of magnitude 4");
  refused("ring:bits=3,max=0.05", "010305000000000031", 1, "a code after the last, value 0");
  refused("ring:bits=16,max=0.05", "01101300000000000080", 1, "a code of magnitude 32768");
  refused("ring:bits=24,max=0.05", "01181b0000000000000080", 1, "a code of magnitude 8388608");
}

}  // namespace
}  // namespace fluvial::kernels
