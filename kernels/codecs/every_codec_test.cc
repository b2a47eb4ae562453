// Properties of every codec, against the reference's own reading of the bytes.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "core/base/printable.h"
#include "kernels/codec.h"
#include "kernels/fixed.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using test_values::Encoded;
using ::testing::HasSubstr;

TEST(CodecSpec, ParsesDefaultsAndOptions) {
  EXPECT_EQ(parse_codec("fp32").value(), CodecSpec{});
  EXPECT_EQ(parse_codec("bf16")->kind, CodecKind::kBf16);
  const CodecSpec int8 = parse_codec("int8").value();
  EXPECT_EQ(int8.block_values, 256U);
  EXPECT_TRUE(int8.stochastic);
  const CodecSpec nearest = parse_codec("int8:block=512,rounding=nearest").value();
  EXPECT_EQ(nearest.block_values, 512U);
  EXPECT_FALSE(nearest.stochastic);
  EXPECT_DOUBLE_EQ(parse_codec("topk")->ratio, 0.01);
  EXPECT_DOUBLE_EQ(parse_codec("topk:ratio=0.05")->ratio, 0.05);
}

TEST(CodecSpec, CanonicalTextsRoundTrip) {
  EXPECT_EQ(to_string(parse_codec("int8").value()), "int8:block=256,rounding=stochastic");
  EXPECT_EQ(to_string(parse_codec("sign").value()), "sign:block=256,mode=scaled");
  EXPECT_EQ(to_string(parse_codec("sign:mode=vote").value()), "sign:block=256,mode=vote");
  EXPECT_EQ(to_string(parse_codec("fp32:zstd=3").value()), "fp32:zstd=3");
  EXPECT_EQ(to_string(parse_codec("fp32:zstd=0").value()), "fp32");
  EXPECT_EQ(to_string(parse_codec("int8:zstd=1").value()), "int8:block=256,rounding=stochastic,zstd=1");
  EXPECT_EQ(to_string(parse_codec("topk").value()), "topk:ratio=0.01,select=exact");
  EXPECT_EQ(to_string(parse_codec("qsgd").value()), "qsgd:block=256,levels=127,encoding=packed");
  EXPECT_EQ(to_string(parse_codec("terngrad").value()), "terngrad:block=256,clip=0");
  for (const std::string& text : test_values::codec_texts()) {
    const CodecSpec spec = parse_codec(text).value();
    EXPECT_EQ(parse_codec(to_string(spec)).value(), spec) << text;
  }
}

// A codec's name comes from a parent, too.
TEST(CodecSpec, RefusesInOneShortLine) {
  const std::string texts[] = {"fp\n64\x1b[2J", "int8:a\nb=2", "int8:block=\n", std::string(9'000, 'x')};
  for (const std::string& text : texts) {
    const auto refused = parse_codec(text);
    ASSERT_FALSE(refused.ok());
    EXPECT_TRUE(is_printable(refused.error().message)) << refused.error().message;
    EXPECT_LT(refused.error().message.size(), 400U);
  }
}

TEST(CodecSpec, RefusesWithWhatWasExpected) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "expected one of fp32"},
      {"fp64", "expected one of fp32"},
      {"fp32:block=2", "expected zstd"},
      {"int8:", "key=value"},
      {"int8:block", "key=value"},
      {"int8:block=127", "expected 128 to 2048"},
      {"int8:block=2049", "expected 128 to 2048"},
      {"int8:block=-1", "whole number"},
      {"int8:block=99999999999", "whole number"},
      {"int8:rounding=up", "rounding to be stochastic or nearest"},
      {"int8:ratio=0.1", "expected block, rounding"},
      {"sign:block=64", "expected 128 to 2048"},
      {"sign:mode=majority", "mode to be vote or scaled"},
      {"int4:block=129", "an even number"},
      {"fp16:block=128", "expected zstd"},
      {"fp32:zstd=20", "zstd is 20, expected 0 (off) to 19"},
      {"topk:zstd=-1", "expected 0 (off) to 19"},
      {"int8:zstd=fast", "zstd to be a whole number"},
      {"qsgd:levels=0", "levels is 0, expected 1 to 127"},
      {"qsgd:levels=128", "expected 1 to 127"},
      {"qsgd:block=64", "expected 128 to 2048"},
      {"qsgd:encoding=gamma", "encoding to be elias or packed"},
      {"terngrad:clip=-1", "clip is -1, expected 0 (none) or 1 to 100"},
      {"terngrad:clip=nan", "expected 0 (none) or 1 to 100"},
      {"terngrad:clip=0.5", "expected 0 (none) or 1 to 100"},
      {"topk:ratio=0", "above 0 and at most 1"},
      {"topk:ratio=1.01", "above 0 and at most 1"},
      {"topk:ratio=nan", "above 0 and at most 1"},
      {"topk:ratio=0.1x", "to be a number"},
      {"topk:ratio=0.1,", "key=value"},
  };
  for (const auto& [text, message] : cases) {
    const Result<CodecSpec> spec = parse_codec(text);
    ASSERT_FALSE(spec.ok()) << text;
    EXPECT_EQ(spec.error().code, Code::kInvalidArgument);
    EXPECT_THAT(spec.error().message, HasSubstr(message)) << text;
  }
}

class EveryCodec : public ::testing::TestWithParam<std::string> {
 protected:
  std::unique_ptr<Codec> codec_ = codec_of(GetParam());
};

INSTANTIATE_TEST_SUITE_P(All, EveryCodec, ::testing::ValuesIn(test_values::codec_texts()), [](const auto& test) {
  std::string name = test.param;
  std::erase_if(name, [](char c) { return std::isalnum(static_cast<unsigned char>(c)) == 0; });
  return name;
});

std::vector<std::vector<float>> vectors() {
  return {
      {},
      {1.5F},
      {0.0F},
      std::vector<float>(777, 0.0F),
      std::vector<float>(2049, -3.25F),
      test_values::normals(10'000, 11),
      test_values::adversarial(5'000, 12, 1024.0F),
      test_values::adversarial(5'000, 13, std::numeric_limits<float>::max()),
      test_values::adversarial(3'000, 14, 0x1p-120F),
  };
}

TEST_P(EveryCodec, DecodesAsTheReferenceDoes) {
  for (const auto& vector : vectors()) {
    for (const std::uint64_t chunk_values : {1000U, 4096U}) {
      const Encoded encoded = test_values::encode(*codec_, vector, chunk_values);
      const std::vector<float> decoded = test_values::decode(*codec_, encoded);
      for (std::size_t i = 0; i < encoded.chunks.size(); ++i) {
        const auto chunk = encoded.plan.layout.of(std::span(decoded), i);
        EXPECT_LE(encoded.chunks[i].size(), codec_->encoded_bytes_max(chunk.size()));
        const auto expected = reference::decode(GetParam(), encoded.chunks[i].span(), chunk.size());
        ASSERT_TRUE(expected.has_value());
        for (std::size_t j = 0; j < chunk.size(); ++j) ASSERT_EQ(static_cast<double>(chunk[j]), (*expected)[j]);
      }
    }
  }
}

TEST_P(EveryCodec, ScreensToTheDecodedMaximumAndNorm) {
  for (const auto& vector : vectors()) {
    const Encoded encoded = test_values::encode(*codec_, vector, 1 << 14);
    if (encoded.chunks.empty()) continue;
    const std::vector<float> decoded = test_values::decode(*codec_, encoded);
    const auto report = codec_->screen_chunk(encoded.chunks[0].span(), decoded.size(), 0);
    ASSERT_TRUE(report.ok()) << report.error().message;
    float max_abs = 0;
    long double squares = 0;
    for (const float value : decoded) {
      max_abs = std::max(max_abs, std::fabs(value));
      squares += static_cast<long double>(value) * static_cast<long double>(value);
    }
    EXPECT_EQ(report->max_abs, max_abs);
    EXPECT_NEAR(report->norm_squared, static_cast<double>(squares), 1e-12 * static_cast<double>(squares));
    EXPECT_EQ(report->norm_squared, screen(decoded)->norm_squared);  // a function of the decoded values alone
  }
}

TEST_P(EveryCodec, AccumulatesTheReferenceTerms) {
  const auto vector = test_values::adversarial(9'000, 21, codec_->spec().unbiased ? 256.0F : 1024.0F);
  const Encoded encoded = test_values::encode(*codec_, vector, 5'000);
  for (const auto& [weight, scale] : {std::pair{1U, 30}, {7U, 0}, {123'456U, 35}, {kWeightEnd - 1, 23}, {3U, -20}}) {
    for (std::size_t i = 0; i < encoded.chunks.size(); ++i) {
      const std::size_t size = encoded.plan.layout.size(i);
      const auto decoded = reference::decode(GetParam(), encoded.chunks[i].span(), size);
      std::vector<std::int64_t> sum(size);
      std::iota(sum.begin(), sum.end(), -100);
      const Status added = codec_->decode_accumulate_chunk(encoded.chunks[i].span(), weight, scale, sum);
      // qsgd may decode to more than was encoded: a step is a fraction of the norm, not of the greatest value.
      const bool fits = std::ranges::all_of(
          *decoded, [&](double value) { return reference::fixed_term(value, weight, scale).has_value(); });
      ASSERT_TRUE(fits || codec_->spec().kind == CodecKind::kQsgd);
      ASSERT_EQ(added.ok(), fits);
      if (!fits) continue;
      for (std::size_t j = 0; j < size; ++j) {
        const auto term = reference::fixed_term((*decoded)[j], weight, scale);
        ASSERT_EQ(sum[j], static_cast<std::int64_t>(j) - 100 + term.value()) << (*decoded)[j] << " * " << weight;
      }
    }
  }
}

TEST_P(EveryCodec, LeavesTheSumAloneWhenAValueIsBeyondTheScale) {
  auto vector = test_values::normals(8'000, 22);
  std::fill(vector.begin() + 7'000, vector.end(), 5000.0F);  // enough that a codec that draws coordinates meets one
  const Encoded encoded = test_values::encode(*codec_, vector, 1 << 14);
  std::vector<std::int64_t> sum(vector.size());
  std::iota(sum.begin(), sum.end(), 5);
  const auto before = sum;
  const float most = codec_->screen_chunk(encoded.chunks[0].span(), vector.size(), 0)->max_abs;
  const int scale = 63 - std::ilogb(most);  // most * 2^scale >= 2^63
  const Status status = codec_->decode_accumulate_chunk(encoded.chunks[0].span(), 1, scale, sum);
  ASSERT_FALSE(status.ok());
  EXPECT_EQ(status.error().code, Code::kDataLoss);
  EXPECT_EQ(sum, before);
  EXPECT_EQ(codec_->decode_accumulate_chunk(encoded.chunks[0].span(), 0, 1, sum).error().code, Code::kInvalidArgument);
  EXPECT_EQ(codec_->decode_accumulate_chunk(encoded.chunks[0].span(), kWeightEnd, 1, sum).error().code,
            Code::kInvalidArgument);
}

TEST_P(EveryCodec, ResidualIsWhatDecodingLeavesOut) {
  for (const auto& vector : vectors()) {
    const Encoded encoded = test_values::encode(*codec_, vector, 1 << 14);
    if (encoded.chunks.empty()) continue;
    const std::vector<float> decoded = test_values::decode(*codec_, encoded);
    std::vector<float> residual(vector.size());
    ASSERT_TRUE(codec_->residual_chunk(vector, encoded.chunks[0].span(), residual).ok());
    for (std::size_t i = 0; i < vector.size(); ++i) {
      ASSERT_EQ(residual[i], codec_->spec().unbiased ? 0.0F : vector[i] - decoded[i]);
      if (codec_->lossless()) {
        ASSERT_EQ(residual[i], 0.0F);
      }
    }
    std::vector<float> in_place = vector;
    ASSERT_TRUE(codec_->residual_chunk(in_place, encoded.chunks[0].span(), in_place).ok());
    EXPECT_EQ(test_values::bits_of(in_place), test_values::bits_of(residual));
  }
}

TEST_P(EveryCodec, EncodesAndLeavesTheResidualInOnePassToTheSameBits) {
  for (const auto& vector : vectors()) {
    const Encoded encoded = test_values::encode(*codec_, vector, 1 << 14);
    if (encoded.chunks.empty()) continue;
    std::vector<float> expected(vector.size());
    ASSERT_TRUE(codec_->residual_chunk(vector, encoded.chunks[0].span(), expected).ok());
    std::vector<float> in_place = vector;
    std::vector<float> apart(vector.size());
    for (std::vector<float>* residual : {&apart, &in_place}) {
      Buffer bytes(codec_->encoded_bytes_max(vector.size()));
      const std::span<const float> values = residual == &in_place ? in_place : vector;
      const auto size = codec_->encode_residual_chunk(encoded.plan, 0, values, bytes.span(), *residual);
      ASSERT_TRUE(size.ok()) << size.error().message;
      EXPECT_TRUE(std::ranges::equal(bytes.span().first(*size), encoded.chunks[0].span()));
      EXPECT_EQ(test_values::bits_of(*residual), test_values::bits_of(expected));
    }
  }
}

TEST_P(EveryCodec, AddsWeightedValuesInFp32) {
  const auto vector = test_values::adversarial(9'000, 23, 1024.0F);
  const Encoded encoded = test_values::encode(*codec_, vector, 1 << 14);
  const auto decoded = reference::decode(GetParam(), encoded.chunks[0].span(), vector.size());
  auto sum = test_values::normals(vector.size(), 24);
  const auto before = sum;
  ASSERT_TRUE(codec_->decode_add_chunk(encoded.chunks[0].span(), 0.37F, sum).ok());
  for (std::size_t i = 0; i < sum.size(); ++i) {
    const auto term = static_cast<float>(static_cast<double>(0.37F) * (*decoded)[i]);  // exact in fp64, rounded once
    ASSERT_EQ(sum[i], static_cast<float>(static_cast<double>(before[i]) + static_cast<double>(term))) << i;
  }
}

TEST_P(EveryCodec, EncodesTheSameBytesAgainAndOnEveryTarget) {
  for (const auto& vector : vectors()) {
    const Encoded expected = test_values::encode(*codec_, vector, 3'001);
    for (const cpu::Target target : cpu::supported_targets()) {
      const auto codec = codec_of(GetParam(), target);
      const Encoded encoded = test_values::encode(*codec, vector, 3'001);
      for (std::size_t i = 0; i < encoded.chunks.size(); ++i) {
        EXPECT_TRUE(std::ranges::equal(encoded.chunks[i].span(), expected.chunks[i].span()))
            << cpu::target_name(target);
      }
    }
  }
}

TEST_P(EveryCodec, RefusesWrongArguments) {
  const std::vector<float> vector(100, 1.0F);
  const VectorSchema schema{.layout = {.value_count = 100, .chunk_values = 64}, .tensors = {}};
  Buffer workspace(codec_->workspace_bytes(schema));
  Buffer state(codec_->state_bytes(schema));
  EXPECT_EQ(codec_->passes(), 1U);
  const auto prepare = [&](const VectorSchema& with, PassInput input) {
    return codec_->prepare(with, vector, {}, input, state.span(), workspace.span());
  };
  EXPECT_THAT(prepare(schema, {.pass = 1, .reduced = {}}).error().message, HasSubstr("pass 1"));
  const float reduced[1] = {};
  EXPECT_THAT(prepare(schema, {.pass = 0, .reduced = reduced}).error().message, HasSubstr("pass 0"));
  EXPECT_FALSE(prepare({.layout = {.value_count = 99, .chunk_values = 64}, .tensors = {}}, {}).ok());
  EXPECT_FALSE(prepare({.layout = {.value_count = 100, .chunk_values = 0}, .tensors = {}}, {}).ok());
  std::byte extra{};
  EXPECT_FALSE(codec_->prepare(schema, vector, {}, {}, MutableByteSpan(&extra, 1), workspace.span()).ok());
  const EncodePlan plan = prepare(schema, {}).value();
  Buffer out(codec_->encoded_bytes_max(64));
  const std::span<const float> values(vector);
  EXPECT_FALSE(codec_->encode_chunk(plan, 2, values.first(36), out.span()).ok());
  EXPECT_FALSE(codec_->encode_chunk(plan, 1, values.first(64), out.span()).ok());
  EXPECT_FALSE(codec_->encode_chunk(plan, 0, values.first(64), out.span().first(out.size() - 1)).ok());
  EXPECT_TRUE(codec_->encode_chunk(plan, 1, values.last(36), out.span()).ok());
}

TEST(Codec, RefusesSpecsOutOfRange) {
  EXPECT_FALSE(make_codec({.kind = CodecKind::kInt8, .block_values = 64}).ok());
  EXPECT_FALSE(make_codec({.kind = CodecKind::kTopk, .ratio = 2}).ok());
}

TEST(Bf16, RoundsHalfToEvenAndSaturates) {
  const std::pair<float, float> cases[] = {
      {1.0F, 1.0F},
      {0x1.01p0F, 0x1.00p0F},  // half way, to even
      {0x1.03p0F, 0x1.04p0F},  // half way, to even
      {0x1.0101p0F, 0x1.02p0F},
      {-0x1.03p0F, -0x1.04p0F},
      {0x1p-149F, 0.0F},
      {std::numeric_limits<float>::max(), 0x1.fep127F},
      {-std::numeric_limits<float>::max(), -0x1.fep127F},
  };
  const auto codec = codec_of("bf16");
  for (const auto& [value, expected] : cases) {
    const std::vector<float> vector = {value};
    EXPECT_EQ(test_values::decode(*codec, test_values::encode(*codec, vector, 1))[0], expected) << value;
  }
}

std::string golden(std::string_view text, std::span<const float> values) {
  const auto codec = codec_of(text);
  return to_hex(test_values::encode(*codec, values, 1 << 20).chunks[0].span());
}

// These bytes are what other versions and other machines read and write: docs/formats/codecs.md.
TEST(Codec, GoldenBytes) {
  const std::vector<float> values = {1.0F, -2.5F, 0.0F, 0x1.8p-3F};
  EXPECT_EQ(golden("fp32", values), "0000803f000020c0000000000000403e");
  EXPECT_EQ(golden("bf16", values), "803f20c00000403e");
  EXPECT_EQ(golden("fp16", values), "003c00c100000032");
  EXPECT_EQ(golden("int8:block=128,rounding=nearest", values), "01008000000000008542a13c3381000a");
  EXPECT_EQ(golden("sign:block=128", values), "010080000000000000006c3f02");  // the mean magnitude 0.921875; bit 1
  EXPECT_EQ(golden("sign:mode=vote", values), "010100000000000002");
  EXPECT_EQ(golden("int4:block=128,rounding=nearest", values), "01008000000000006edbb63e9310");
  EXPECT_EQ(golden("int4:block=128,rounding=nearest", std::span(values).first(3)), "01008000000000006edbb63e9300");
  // The norm is 2.69908: steps 0.0212526 and 0.539816; codes 47 -117 0 9, and in four bits each 2 -4 0 0.
  EXPECT_EQ(golden("qsgd:block=128", values), "01008000040000007f0000004f1aae3c2f8b0009");
  EXPECT_EQ(golden("qsgd:levels=5", values), "010000010400000005000000af310a3fc200");
  EXPECT_EQ(golden("terngrad:block=128", values), "010080000400000000002040fd");  // codes 0 -1 0 0: -3
  EXPECT_EQ(golden("topk:ratio=0.5", values), "02000000020000000000803f000020c003");
  std::vector<float> sparse(400, 0.0F);
  sparse[3] = 1.0F;
  sparse[399] = -1.0F;
  // Step sqrt(2) / 4: codes 3 (001 00 0) and -3 (001 00 1) among 398 zeros, a one each: 410 bits.
  EXPECT_EQ(golden("qsgd:block=400,levels=4,encoding=elias", sparse),
            "010190019001000004000000f404b53e340027fe" + std::string(96, 'f') + "4f02");
  EXPECT_EQ(golden("topk:ratio=0.01", sparse), "02070000020000000000803f000080bf830511");
}

// The encoder's rule, with the reference's random bits.
std::string stochastic_bytes(std::span<const float> values, float most, bool nibbles) {
  std::vector<std::byte> codes;
  std::vector<std::byte> scales;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const auto block = values.subspan(i / 128 * 128, std::min<std::size_t>(128, values.size() - i / 128 * 128));
    float amax = 0;
    for (const float value : block) amax = std::max(amax, std::fabs(value));
    const float scale = amax / most;
    if (i % 128 == 0) {
      std::byte le[4];
      store_le(le, std::bit_cast<std::uint32_t>(scale));
      scales.insert(scales.end(), le, le + 4);
    }
    const float fine = values[i] * (16384.0F / scale);
    const double units =
        std::nearbyint(static_cast<double>(fine)) + std::floor(reference::random_bits(1, 2, 3, i) / 4.0);
    const auto code = static_cast<std::byte>(static_cast<std::int8_t>(std::floor(units / 16384.0)));
    if (!nibbles) {
      codes.push_back(code);
    } else if (i % 2 == 0) {
      codes.push_back(code & std::byte{15});
    } else {
      codes.back() |= code << 4;
    }
  }
  return "0100800000000000" + to_hex(scales) + to_hex(codes);
}

TEST(Codec, GoldenStochasticBytes) {
  std::vector<float> ramp(131);
  for (std::size_t i = 0; i < ramp.size(); ++i) ramp[i] = static_cast<float>(i) * 0.37F - 20.0F;
  EXPECT_EQ(golden("int8:block=128", ramp), stochastic_bytes(ramp, 127.0F, false));
  EXPECT_EQ(golden("int4:block=128", ramp), stochastic_bytes(ramp, 7.0F, true));
  const std::vector<float> few = {1.0F, -2.5F, 0.3F, 0.7F, -1.1F};
  EXPECT_EQ(stochastic_bytes(few, 127.0F, false), golden("int8:block=128", few));
  EXPECT_EQ(golden("int8:block=128", few), "01008000000000008542a13c33810f24c8");
  EXPECT_EQ(golden("int4:block=128", few), "01008000000000006edbb63e93210d");
}

}  // namespace
}  // namespace fluvial::kernels
