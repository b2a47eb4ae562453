#include "kernels/reference/dgc.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstring>

#include "kernels/test_values.h"
#include "kernels/vector.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using ::testing::HasSubstr;

// A site with dgc: its state, round after round.
class Site {
 public:
  Site(std::string_view text, std::size_t values, cpu::Target target = cpu::best_target())
      : codec_(codec_of(text, target)),
        schema_{.layout = {.value_count = values, .chunk_values = 700}, .tensors = {}},
        state_(codec_->state_bytes(schema_)),
        residual_(values, 0.0F) {
    std::ranges::fill(state_.span(), std::byte{0});
  }

  // What travels, decoded.
  std::vector<float> round(std::span<const float> update, std::uint64_t number) {
    std::vector<float> vector(update.size());
    Status status = codec_->fold(schema_, update, residual_, state_.span(), vector);
    EXPECT_TRUE(status.ok());
    Buffer workspace(codec_->workspace_bytes(schema_));
    const auto plan =
        codec_->prepare(schema_, vector, {.run = 1, .round = number, .site = 2}, {}, state_.span(), workspace.span());
    EXPECT_TRUE(plan.ok());
    std::vector<float> decoded(update.size());
    for (std::size_t i = 0; i < schema_.layout.chunk_count(); ++i) {
      const auto chunk = schema_.layout.of(std::span<const float>(vector), i);
      Buffer bytes(codec_->encoded_bytes_max(chunk.size()));
      const auto residual = schema_.layout.of(std::span(residual_), i);
      bytes.shrink(codec_->encode_residual_chunk(*plan, i, chunk, bytes.span(), residual).value());
      EXPECT_TRUE(codec_->settle_chunk(schema_, i, bytes.span(), state_.span()).ok());
      EXPECT_TRUE(codec_->decode_chunk(bytes.span(), schema_.layout.of(std::span(decoded), i)).ok());
    }
    return decoded;
  }

  const std::vector<float>& residual() const { return residual_; }
  std::vector<float> momentum() const {
    std::vector<float> momentum(state_.size() / sizeof(float));
    std::memcpy(momentum.data(), state_.data(), state_.size());
    return momentum;
  }

 private:
  std::unique_ptr<Codec> codec_;
  VectorSchema schema_;
  Buffer state_;
  std::vector<float> residual_;
};

void expect_close(std::span<const float> values, std::span<const double> expected, double scale) {
  for (std::size_t i = 0; i < values.size(); ++i) {
    ASSERT_NEAR(static_cast<double>(values[i]), expected[i], 2e-6 * scale) << i;
  }
}

void expect_as_the_paper(std::string_view text, reference::Dgc paper, double ratio, std::uint32_t warmup) {
  constexpr std::size_t kValues = 3'000;
  for (const cpu::Target target : cpu::supported_targets()) {
    Site site(text, kValues, target);
    reference::Dgc oracle = paper;
    for (std::uint64_t round = 1; round <= 30; ++round) {
      const auto update = test_values::normals(kValues, round, static_cast<float>(1 + round % 3));
      const std::vector<double> wide(update.begin(), update.end());
      const double part = reference::dgc_ratio(ratio, warmup, round);
      const auto expected = oracle.round(wide, static_cast<std::size_t>(std::ceil(part * kValues)));
      const auto sent = site.round(update, round);
      for (std::size_t i = 0; i < kValues; ++i) ASSERT_EQ(sent[i] != 0, expected[i] != 0) << text << " round " << round;
      expect_close(sent, expected, 100);
      expect_close(site.residual(), oracle.v, 100);
      expect_close(site.momentum(), oracle.u, 30);
    }
  }
}

TEST(Dgc, RunsAsThePaperInFp64) {
  expect_as_the_paper("dgc:ratio=0.01", {.momentum = 0.9, .u = {}, .v = {}}, 0.01, 0);
  expect_as_the_paper("dgc:ratio=0.005,warmup=4", {.momentum = 0.9, .u = {}, .v = {}}, 0.005, 4);
  expect_as_the_paper("dgc:warmup=6,momentum=0.5", {.momentum = 0.5, .u = {}, .v = {}}, 0.001, 6);
  expect_as_the_paper("dgc:ratio=0.02,clip=60", {.momentum = 0.9, .clip = 60, .u = {}, .v = {}}, 0.02, 0);
  expect_as_the_paper("dgc:ratio=1", {.momentum = 0.9, .u = {}, .v = {}}, 1, 0);
}

TEST(Dgc, WithoutMomentumAndClippingItIsTopkWithErrorFeedback) {
  Site dgc("dgc:ratio=0.01,momentum=0,clip=0", 5'000);
  Site topk("topk:ratio=0.01", 5'000);
  for (std::uint64_t round = 1; round <= 20; ++round) {
    const auto update =
        round % 2 == 0 ? test_values::normals(5'000, round) : test_values::adversarial(5'000, round, 100);
    ASSERT_EQ(test_values::bits_of(dgc.round(update, round)), test_values::bits_of(topk.round(update, round)));
    ASSERT_EQ(test_values::bits_of(dgc.residual()), test_values::bits_of(topk.residual()));
  }
}

TEST(Dgc, DefaultsAreThePapers) {
  EXPECT_EQ(to_string(parse_codec("dgc").value()), "dgc:ratio=0.001,momentum=0.9,clip=0,warmup=0");
  for (const char* text : {"dgc:momentum=1", "dgc:momentum=-0.1", "dgc:momentum=nan", "dgc:clip=-1", "dgc:clip=inf",
                           "dgc:ratio=0", "dgc:warmup=-1"}) {
    EXPECT_FALSE(parse_codec(text).ok()) << text;
  }
}

TEST(Dgc, WarmsUpOnTheSchedule) {
  const auto codec = codec_of("dgc:warmup=2");
  const auto vector = test_values::normals(100'000, 1);
  const std::size_t expected[] = {25'000, 25'000, 6'250, 6'250, 1'563, 1'563, 400, 400, 100, 100, 100, 100};
  for (std::uint64_t round = 1; round <= std::size(expected); ++round) {
    const auto decoded = test_values::decode(*codec, test_values::encode(*codec, vector, 30'000, {1, round, 0}));
    EXPECT_EQ(std::ranges::count_if(decoded, [](float x) { return x != 0; }), expected[round - 1]) << round;
  }
  // Never below the ratio asked for.
  const auto wide = codec_of("dgc:ratio=0.1,warmup=1");
  for (const auto& [round, sent] : {std::pair{1U, 25'000}, {2U, 10'000}, {3U, 10'000}, {9U, 10'000}}) {
    const auto decoded = test_values::decode(*wide, test_values::encode(*wide, vector, 30'000, {1, round, 0}));
    EXPECT_EQ(std::ranges::count_if(decoded, [](float x) { return x != 0; }), sent) << round;
  }
}

// The known mistake: a bound on each element instead of the norm.
TEST(Dgc, ClipsByTheNormAndKeepsTheDirection) {
  const auto codec = codec_of("dgc:ratio=1,clip=5");
  const VectorSchema schema{.layout = {.value_count = 2, .chunk_values = 2}, .tensors = {}};
  std::vector<float> state(2, 0.0F), out(2);
  const auto fold = [&](std::vector<float> update) {
    std::ranges::fill(state, 0.0F);
    const Status status = codec->fold(schema, update, {}, std::as_writable_bytes(std::span(state)), out);
    EXPECT_TRUE(status.ok());
    return out;
  };
  EXPECT_EQ(fold({30, 40}), (std::vector<float>{3, 4}));
  EXPECT_EQ(fold({3, 4}), (std::vector<float>{3, 4}));
  EXPECT_EQ(fold({0, 0}), (std::vector<float>{0, 0}));
  EXPECT_EQ(fold({5, -0.0F}), (std::vector<float>{5, 0}));
  EXPECT_FALSE(std::signbit(out[1]));
  EXPECT_NEAR(fold({3e38F, 3e38F})[0], 5 / std::sqrt(2.0), 1e-6);  // whose square is beyond fp32
}

TEST(Dgc, WhatIsNotFiniteIsRefusedAndLeavesTheStateAlone) {
  for (const char* text : {"dgc", "dgc:clip=1"}) {
    const auto codec = codec_of(text);
    const VectorSchema schema{.layout = {.value_count = 100, .chunk_values = 100}, .tensors = {}};
    std::vector<float> state(100, 2.0F), update(100, 1.0F), out(100);
    update[71] = std::numeric_limits<float>::quiet_NaN();
    const Status status = codec->fold(schema, update, {}, std::as_writable_bytes(std::span(state)), out);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kInvalidArgument);
    EXPECT_THAT(status.error().message, HasSubstr("value 71 is NaN"));
    EXPECT_EQ(state, std::vector<float>(100, 2.0F));
  }
}

TEST(Dgc, SettlingChecksItsArguments) {
  const auto codec = codec_of("dgc:ratio=0.5");
  const VectorSchema schema{.layout = {.value_count = 4, .chunk_values = 4}, .tensors = {}};
  std::vector<float> state = {1, 2, 3, 4};
  const MutableByteSpan bytes = std::as_writable_bytes(std::span(state));
  const Buffer chunk = from_hex("02000000020000000000803f000020c003").value();
  EXPECT_FALSE(codec->settle_chunk(schema, 1, chunk.span(), bytes).ok());
  EXPECT_FALSE(codec->settle_chunk(schema, 0, chunk.span(), bytes.first(12)).ok());
  EXPECT_THAT(codec->settle_chunk(schema, 0, chunk.span().first(9), bytes).error().message, HasSubstr("dgc chunk: "));
  EXPECT_EQ(state, (std::vector<float>{1, 2, 3, 4}));
  EXPECT_TRUE(codec->settle_chunk(schema, 0, chunk.span(), bytes).ok());
  EXPECT_EQ(state, (std::vector<float>{0, 0, 3, 4}));
}

// These bytes are what other versions and other machines read and write: docs/formats/codecs-sparse.md.
TEST(Dgc, GoldenBytes) {
  const std::vector<float> values = {1.0F, -2.5F, 0.0F, 0x1.8p-3F};
  const auto encoded = test_values::encode(*codec_of("dgc:ratio=0.5"), values, 4);
  EXPECT_EQ(to_hex(encoded.chunks[0].span()), "02000000020000000000803f000020c003");
}

}  // namespace
}  // namespace fluvial::kernels
