// Properties of the sign codec alone: its scale, its contraction, its votes.
#include "kernels/reference/sign.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "kernels/codec.h"
#include "kernels/cpu/sign_loops.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using ::testing::HasSubstr;

std::vector<std::byte> encoded_bytes(std::string_view text, std::span<const float> vector,
                                     cpu::Target target = cpu::best_target()) {
  const auto encoded = test_values::encode(*codec_of(text, target), vector, 1 << 20);
  return {encoded.chunks[0].span().begin(), encoded.chunks[0].span().end()};
}

TEST(Sign, EncodesTheBytesOfTheReferenceOnEveryTarget) {
  for (const std::size_t size : {1U, 7U, 8U, 63U, 64U, 65U, 127U, 128U, 129U, 300U, 301U, 1'000U, 4'099U}) {
    for (const auto& vector : {test_values::normals(size, size), test_values::adversarial(size, size, 3e38F),
                               test_values::adversarial(size, size, 0x1p-140F), std::vector<float>(size, -0.0F)}) {
      for (const cpu::Target target : cpu::supported_targets()) {
        for (const std::size_t block : {128U, 131U, 256U, 300U, 2'048U}) {
          ASSERT_EQ(encoded_bytes("sign:block=" + std::to_string(block), vector, target),
                    reference::encode_sign(vector, block))
              << size << " values, " << cpu::target_name(target);
        }
        ASSERT_EQ(encoded_bytes("sign:mode=vote", vector, target), reference::encode_sign(vector, 0));
      }
    }
  }
}

// The verbs of a receiver, on every target; the first value not aligned to anything.
TEST(Sign, EveryTargetReadsTheSameBits) {
  for (const std::size_t size : {1U, 63U, 64U, 200U, 2'048U, 5'003U}) {
    const auto vector = test_values::adversarial(size, 31, 1024.0F);
    for (const char* text : {"sign:block=128", "sign:block=301", "sign:mode=vote"}) {
      const auto bytes = encoded_bytes(text, vector);
      std::vector<std::vector<std::uint32_t>> seen;
      std::vector<std::vector<std::int64_t>> sums;
      for (const cpu::Target target : cpu::supported_targets()) {
        const auto codec = codec_of(text, target);
        std::vector<float> room(size + 1);
        const auto out = std::span(room).subspan(1);
        ASSERT_TRUE(codec->decode_chunk(bytes, out).ok());
        seen.push_back(test_values::bits_of(out));
        ASSERT_TRUE(codec->residual_chunk(vector, bytes, out).ok());
        for (const std::uint32_t bits : test_values::bits_of(out)) seen.back().push_back(bits);
        ASSERT_TRUE(codec->decode_add_chunk(bytes, -0.3F, out).ok());
        for (const std::uint32_t bits : test_values::bits_of(out)) seen.back().push_back(bits);
        sums.emplace_back(size + 1, 5);
        ASSERT_TRUE(codec->decode_accumulate_chunk(bytes, 12'345, 31, std::span(sums.back()).subspan(1)).ok());
        EXPECT_EQ(seen.back(), seen.front()) << cpu::target_name(target);
        EXPECT_EQ(sums.back(), sums.front()) << cpu::target_name(target);
      }
    }
  }
}

TEST(Sign, ZeroesAndWhatUnderflows) {
  std::vector<float> vector(512, 0.0F);
  vector[1] = -0.0F;
  for (std::size_t i = 256; i < 512; ++i) vector[i] = i < 300 ? -0x1p-149F : 0.0F;  // mean 44/256 of the least denormal
  const auto codec = codec_of("sign");
  const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 512));
  EXPECT_EQ(test_values::bits_of(decoded), std::vector<std::uint32_t>(512, 0));
  vector[256] = -0x1p-142F;  // now the mean rounds to the least denormal
  const auto least = test_values::decode(*codec, test_values::encode(*codec, vector, 512));
  EXPECT_EQ(least[256], -0x1p-149F);
  EXPECT_EQ(least[511], 0x1p-149F);
  const std::vector<float> greatest(300, -std::numeric_limits<float>::max());
  EXPECT_EQ(test_values::decode(*codec, test_values::encode(*codec, greatest, 512)), greatest);
  const auto votes = codec_of("sign:mode=vote");
  EXPECT_EQ(test_values::decode(*votes, test_values::encode(*votes, std::vector<float>{0.0F, -0.0F, -0x1p-149F}, 8)),
            (std::vector<float>{1.0F, 1.0F, -1.0F}));
}

// ||C(p) - p||^2 = (1 - delta) ||p||^2 with delta = ||p||_1^2 / (d ||p||^2), but for the scale's rounding.
TEST(Sign, ContractsEachBlockByDelta) {
  std::vector<float> lone(300, 0.0F);
  lone[100] = 7.0F;
  for (const auto& vector : {test_values::normals(3'000, 41), test_values::adversarial(3'000, 42, 1000.0F),
                             std::vector<float>(700, -2.5F), lone}) {
    for (const std::size_t block : {128U, 256U, 1'000U}) {
      const auto codec = codec_of("sign:block=" + std::to_string(block));
      const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 1 << 20));
      for (std::size_t first = 0; first < vector.size(); first += block) {
        const std::size_t end = std::min(first + block, vector.size());
        double error = 0, squares = 0, sum = 0;
        for (std::size_t i = first; i < end; ++i) {
          const double p = static_cast<double>(vector[i]);
          error += (static_cast<double>(decoded[i]) - p) * (static_cast<double>(decoded[i]) - p);
          squares += p * p;
          sum += std::fabs(p);
        }
        const double delta = squares == 0 ? 1 : sum * sum / (static_cast<double>(end - first) * squares);
        ASSERT_LE(error, (1 - delta) * squares + 1e-6 * squares) << first;
        ASSERT_GE(error, (1 - delta) * squares - 1e-6 * squares) << first;
        ASSERT_GE(delta, 1.0 / static_cast<double>(end - first) - 1e-12);
      }
    }
  }
}

// Known mistake of a public version: the first step sent something other than lr * update. From the first round on,
// every part of an update was either sent or is still in the residual.
TEST(Sign, ErrorFeedbackKeepsEverythingFromTheFirstRoundOn) {
  constexpr std::size_t kValues = 2'000;
  const auto codec = codec_of("sign");
  const VectorSchema schema{.layout = {.value_count = kValues, .chunk_values = 1'024}, .tensors = {}};
  std::vector<float> residual(kValues, 0.0F);
  std::vector<double> updates(kValues, 0.0), sent(kValues, 0.0), magnitude(kValues, 0.0);
  for (std::uint64_t round = 0; round < 20; ++round) {
    const auto update = test_values::normals(kValues, 50 + round, 0.01F);  // the learning rate is in it
    std::vector<float> p(kValues);
    ASSERT_TRUE(codec->fold(schema, update, residual, {}, p).ok());
    const EncodePlan plan = codec->prepare(schema, p, {}, {}, {}, {}).value();
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      const auto chunk = schema.layout.of(std::span(p), i);
      Buffer bytes(codec->encoded_bytes_max(chunk.size()));
      const auto left = schema.layout.of(std::span(residual), i);
      ASSERT_TRUE(codec->encode_residual_chunk(plan, i, chunk, bytes.span(), left).ok());
      const auto decoded = reference::decode("sign", bytes.span(), chunk.size());
      for (std::size_t j = 0; j < chunk.size(); ++j) sent[i * 1'024 + j] += (*decoded)[j];
    }
    for (std::size_t i = 0; i < kValues; ++i) {
      updates[i] += static_cast<double>(update[i]);
      magnitude[i] += std::fabs(static_cast<double>(p[i])) + std::fabs(static_cast<double>(residual[i]));
      ASSERT_NEAR(sent[i] + static_cast<double>(residual[i]), updates[i], 0x1p-23 * magnitude[i])
          << "round " << round << ", value " << i;
    }
  }
}

TEST(Sign, RefusesToEncodeWhatIsNotFinite) {
  const VectorSchema schema{.layout = {.value_count = 9'000, .chunk_values = 4'500}, .tensors = {}};
  for (const char* text : {"sign", "sign:block=300", "sign:mode=vote"}) {
    const auto codec = codec_of(text);
    Buffer out(codec->encoded_bytes_max(4'500));
    for (const std::size_t at : {4'500U, 7'000U, 8'999U}) {
      std::vector<float> vector(9'000, -1.0F);
      vector[at] = at == 7'000 ? std::numeric_limits<float>::quiet_NaN() : -std::numeric_limits<float>::infinity();
      const EncodePlan plan = codec->prepare(schema, vector, {}, {}, {}, {}).value();
      EXPECT_TRUE(codec->encode_chunk(plan, 0, std::span(vector).first(4'500), out.span()).ok());
      const auto refused = codec->encode_chunk(plan, 1, std::span(vector).last(4'500), out.span());
      ASSERT_FALSE(refused.ok());
      EXPECT_EQ(refused.error().code, Code::kInvalidArgument);
      EXPECT_EQ(refused.error().message, "sign cannot encode: value " + std::to_string(at) +
                                             (at == 7'000 ? " is NaN" : " is infinite") + ", expected a finite number");
      const auto in_place = std::span(vector).last(4'500);
      EXPECT_THAT(codec->encode_residual_chunk(plan, 1, in_place, out.span(), in_place).error().message,
                  HasSubstr("value " + std::to_string(at)));
    }
  }
}

}  // namespace
}  // namespace fluvial::kernels
