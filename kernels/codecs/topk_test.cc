#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <thread>

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

// Vectors that mislead a sample, or the selection among the values that it lets through.
std::vector<std::pair<std::string, std::vector<float>>> misleading(std::size_t size) {
  std::vector<std::pair<std::string, std::vector<float>>> vectors;
  const auto add = [&](std::string name, auto value_at) {
    std::vector<float> vector(size);
    for (std::size_t i = 0; i < size; ++i) vector[i] = static_cast<float>(value_at(i));
    vectors.emplace_back(std::move(name), std::move(vector));
  };
  const auto position = [](std::size_t i) { return static_cast<double>(i); };
  add("constant", [](std::size_t) { return -3.5; });
  add("equal magnitudes", [](std::size_t i) { return i * 7 % 3 == 0 ? 1 : -1; });
  add("rising", [&](std::size_t i) { return position(i); });
  add("falling", [&](std::size_t i) { return position(size - i); });
  add("zeros", [](std::size_t) { return 0; });
  add("nearly all zero", [](std::size_t i) { return i % 5'000 == 17 ? 1e-30 : 0; });
  add("a few huge", [](std::size_t i) { return i % 997 == 3 ? 3e38 : 1e-3; });
  add("one huge", [&](std::size_t i) { return i == size / 2 ? -3e38 : 0; });
  add("all in one place", [&](std::size_t i) { return i < size / 50 ? 100.0 + position(i % 13) : 1e-3; });
  add("half tied at the top", [](std::size_t i) { return i % 2 == 0 ? 1 : 0.5; });
  add("denormal", [&](std::size_t i) { return std::ldexp(position(i * 31 % 1'009), -149); });
  for (const std::size_t period : {2U, 31U, 32U, 33U, 64U, 250U, 4'096U}) {  // and what a stride of 32 would see of it
    add("period " + std::to_string(period), [&](std::size_t i) { return i % period == 0 ? 100 + i % 7 : i % 5; });
    add("but period " + std::to_string(period), [&](std::size_t i) { return i % period != 0 ? 100 + i % 7 : i % 5; });
  }
  return vectors;
}

TEST(Topk, VectorsThatMisleadTheSampleAreSelectedExactly) {
  for (const std::size_t size : {1'024U, 5'000U, 100'003U}) {
    for (const auto& [name, vector] : misleading(size)) {
      SCOPED_TRACE(name);
      for (const double ratio : {0.0001, 0.01, 0.12}) expect_top_k(vector, ratio, 30'000);
    }
  }
}

TEST(Topk, KeepsWhatIsSentAndScansOnlyWhenMisled) {
  const auto codec = codec_of("topk:ratio=0.01");
  const auto kept = [&](const std::vector<float>& vector) {
    return !test_values::encode(*codec, vector, 10'000).plan.pieces.empty();
  };
  for (std::uint64_t seed = 1; seed <= 20; ++seed) EXPECT_TRUE(kept(test_values::normals(50'000, seed)));
  EXPECT_TRUE(kept(std::vector<float>(50'000, 0.0F)));
  EXPECT_FALSE(kept(std::vector<float>(50'000, 1.0F)));
  EXPECT_FALSE(kept(test_values::normals(1'000, 1)));
  EXPECT_TRUE(
      test_values::encode(*codec_of("topk:ratio=0.2"), test_values::normals(50'000, 1), 10'000).plan.pieces.empty());
  const VectorSchema large{.layout = {.value_count = 25'000'000}, .tensors = {}};
  EXPECT_LT(codec->workspace_bytes(large), std::size_t{3} << 20);
}

// Chunks surveyed in any order, by several threads: the same bytes.
TEST(Topk, SurveyingInPartsGivesTheSameBytes) {
  std::vector<std::vector<float>> vectors = {
      test_values::normals(100'000, 1), std::vector<float>(100'000, 2.0F), test_values::normals(900, 2), {}};
  for (auto& [name, vector] : misleading(60'000)) vectors.push_back(std::move(vector));
  for (const char* text : {"topk", "topk:ratio=0.3", "topk:select=sampled", "topk:zstd=1", "dgc:ratio=0.02"}) {
    const auto codec = codec_of(text);
    for (const auto& vector : vectors) {
      const auto expected = test_values::encode(*codec, vector, 7'000);
      const VectorSchema schema{.layout = expected.plan.layout, .tensors = {}};
      Buffer workspace(codec->workspace_bytes(schema));
      Buffer state(codec->state_bytes(schema));
      ASSERT_TRUE(codec->survey(schema, vector, expected.plan.key, workspace.span()).ok());
      const auto survey = [&](std::size_t first) {
        for (std::size_t i = schema.layout.chunk_count(); i-- > 0;) {
          if (i % 2 != first) continue;
          const auto chunk = schema.layout.of(std::span<const float>(vector), i);
          EXPECT_TRUE(codec->survey_chunk(schema, expected.plan.key, i, chunk, workspace.span()).ok());
        }
      };
      std::thread other(survey, 0);
      survey(1);
      other.join();
      const auto plan = codec->prepare(schema, vector, expected.plan.key, {.pass = 0, .reduced = {}, .surveyed = true},
                                       state.span(), workspace.span());
      ASSERT_TRUE(plan.ok()) << plan.error().message;
      for (std::size_t i = 0; i < expected.chunks.size(); ++i) {
        const auto chunk = schema.layout.of(std::span<const float>(vector), i);
        Buffer out(codec->encoded_bytes_max(chunk.size()));
        out.shrink(codec->encode_chunk(*plan, i, chunk, out.span()).value());
        ASSERT_TRUE(std::ranges::equal(out.span(), expected.chunks[i].span()));
      }
    }
  }
}

TEST(Topk, AVectorThatWasNotWhollySurveyedIsRefused) {
  const auto codec = codec_of("topk");
  const auto vector = test_values::normals(9'000, 1);
  const VectorSchema schema{.layout = {.value_count = 9'000, .chunk_values = 4'000}, .tensors = {}};
  Buffer workspace(codec->workspace_bytes(schema));
  std::ranges::fill(workspace.span(), std::byte{0});
  const auto prepare = [&] {
    return codec->prepare(schema, vector, {}, {.pass = 0, .reduced = {}, .surveyed = true}, {}, workspace.span());
  };
  const auto survey = [&](std::size_t i) {
    return codec->survey_chunk(schema, {}, i, schema.layout.of(std::span<const float>(vector), i), workspace.span());
  };
  EXPECT_THAT(prepare().error().message, ::testing::HasSubstr("not surveyed"));
  ASSERT_TRUE(codec->survey(schema, vector, {}, workspace.span()).ok());
  ASSERT_TRUE(survey(0).ok() && survey(2).ok());
  EXPECT_THAT(prepare().error().message, ::testing::HasSubstr("not surveyed"));
  ASSERT_TRUE(survey(1).ok());
  EXPECT_TRUE(prepare().ok());
  EXPECT_FALSE(prepare().ok());  // once
  EXPECT_FALSE(codec->survey_chunk(schema, {}, 3, vector, workspace.span()).ok());
  EXPECT_FALSE(codec->survey(schema, std::span(vector).first(10), {}, workspace.span()).ok());
}

TEST(Topk, SampledStaysWithinItsBound) {
  // A sample of 12,500, 1,000 of them among the k greatest: k' is within 5 / sqrt(1000) of k.
  const auto codec = codec_of("topk:ratio=0.08,select=sampled");
  bool exact = true;
  for (std::uint64_t seed = 1; seed <= 12; ++seed) {
    const auto vector = test_values::normals(400'000, seed);
    const auto found = sent(test_values::decode(*codec, test_values::encode(*codec, vector, 100'000)));
    EXPECT_NEAR(static_cast<double>(found.size()), 32'000, 32'000 * 5 / std::sqrt(1'000.0));
    exact = exact && found.size() == 32'000;
    if (seed == 1) EXPECT_EQ(found, reference::top_k(vector, found.size()));  // still the greatest values
  }
  EXPECT_FALSE(exact);
}

TEST(Topk, SampledNeverSendsMoreThanTwiceOrLessThanHalf) {
  for (const std::size_t size : {1'024U, 5'000U, 100'003U}) {
    for (const auto& [name, vector] : misleading(size)) {
      for (const double ratio : {0.0001, 0.01, 0.12}) {
        const auto codec = make_codec({.kind = CodecKind::kTopk, .ratio = ratio, .sampled = true}).value();
        const auto found = sent(test_values::decode(*codec, test_values::encode(*codec, vector, 30'000)));
        const auto k = static_cast<std::size_t>(std::ceil(ratio * static_cast<double>(size)));
        const auto nonzero = static_cast<std::size_t>(std::ranges::count_if(vector, [](float x) { return x != 0; }));
        EXPECT_LE(found.size(), 2 * k) << name;
        EXPECT_GE(2 * found.size(), std::min(k, nonzero)) << name;
      }
    }
  }
}

TEST(Topk, WhatIsNotFiniteIsNamed) {
  for (const char* text : {"topk", "topk:select=sampled", "topk:ratio=0.5"}) {
    const auto codec = codec_of(text);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), -std::numeric_limits<float>::infinity()}) {
      auto vector = test_values::normals(9'000, 1);
      vector[8'123] = poison;
      const VectorSchema schema{.layout = {.value_count = 9'000, .chunk_values = 4'000}, .tensors = {}};
      Buffer workspace(codec->workspace_bytes(schema));
      const auto plan = codec->prepare(schema, vector, {}, {}, {}, workspace.span());
      ASSERT_FALSE(plan.ok());
      EXPECT_EQ(plan.error().code, Code::kInvalidArgument);
      EXPECT_THAT(plan.error().message, ::testing::HasSubstr("value 8123 is "));
    }
  }
}

TEST(Topk, IndicesTakeAtMostNineBitsAtOnePercent) {
  const auto codec = codec_of("topk:ratio=0.01");
  const auto encoded = test_values::encode(*codec, test_values::normals(1 << 20, 1), 1 << 20);
  const double entries = std::ceil(0.01 * (1 << 20));
  const double bits = 8 * (static_cast<double>(encoded.chunks[0].size()) - 8 - 4 * entries);
  EXPECT_LT(bits / entries, 8.2);
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
