// The zstd stage around codecs, in addition to every_codec_test.cc and hostile_test.cc.
#include "kernels/codecs/zstd.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <tuple>

#include "kernels/codecs/registry.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

#if defined(FLUVIAL_HAVE_ZSTD)
#include <zstd.h>
#endif

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using ::testing::HasSubstr;

TEST(Zstd, IsAnOptionOfEveryCodec) {
  for (const std::string& example : codec_examples()) {
    const CodecSpec spec =
        parse_codec(example + (example.find(':') == std::string::npos ? ":" : ",") + "zstd=2").value();
    EXPECT_EQ(spec.zstd_level, 2);
    EXPECT_TRUE(to_string(spec).ends_with("zstd=2"));
    EXPECT_EQ(parse_codec(to_string(spec)).value(), spec);
    const auto made = make_codec(spec);
    EXPECT_EQ(made.ok(), zstd_available());
    if (!made.ok()) {
      EXPECT_EQ(made.error().code, Code::kFailedPrecondition);
      EXPECT_THAT(made.error().message, HasSubstr("this build has no zstd"));
    }
  }
  EXPECT_FALSE(make_codec({.zstd_level = 20}).ok());
  EXPECT_FALSE(make_codec({.zstd_level = -1}).ok());
}

#if defined(FLUVIAL_HAVE_ZSTD)

// The stage adds nothing to a codec but its own bytes.
TEST(Zstd, PassesEveryVerbThrough) {
  for (const char* text : {"fp32", "fp16", "int8", "int4", "qsgd:levels=4", "terngrad", "sign", "ring:max=1", "topk",
                           "dgc", "onebit_adam", "onebit_adam:freeze=1"}) {
    CodecSpec spec = parse_codec(text).value();
    const auto inner = make_codec(spec).value();
    spec.zstd_level = 1;
    const auto codec = make_codec(spec).value();
    EXPECT_EQ(codec->spec(), spec);
    EXPECT_EQ(codec->lossless(), inner->lossless());
    EXPECT_EQ(codec->passes(), inner->passes());
    const auto vector = test_values::normals(10'000, 3);
    const VectorSchema schema{.layout = {.value_count = 10'000, .chunk_values = 6'000}, .tensors = {}};
    EXPECT_EQ(codec->state_bytes(schema), inner->state_bytes(schema));
    EXPECT_EQ(codec->workspace_bytes(schema), inner->workspace_bytes(schema));
    EXPECT_EQ(codec->pass_layout(schema, 0), inner->pass_layout(schema, 0));
    EXPECT_EQ(codec->hands_down(), inner->hands_down());
    EXPECT_EQ(codec->handed_bytes(schema, 7), inner->handed_bytes(schema, 7));
    auto expected = test_values::encode(*inner, vector, 6'000);
    auto encoded = test_values::encode(*codec, vector, 6'000);
    ASSERT_EQ(to_hex(encoded.state.span()), to_hex(expected.state.span()));
    EXPECT_EQ(test_values::decode(*codec, encoded), test_values::decode(*inner, expected));
    for (std::size_t i = 0; i < 2; ++i) {
      EXPECT_LE(encoded.chunks[i].size(), expected.chunks[i].size() + 8);
      ASSERT_TRUE(inner->settle_chunk(schema, i, expected.chunks[i].span(), expected.state.span()).ok());
      ASSERT_TRUE(codec->settle_chunk(schema, i, encoded.chunks[i].span(), encoded.state.span()).ok());
    }
    EXPECT_EQ(to_hex(encoded.state.span()), to_hex(expected.state.span())) << text;
    std::vector<float> folded(10'000);
    std::vector<float> folded_inner(10'000);
    ASSERT_TRUE(codec->fold(schema, vector, vector, encoded.state.span(), folded).ok());
    ASSERT_TRUE(inner->fold(schema, vector, vector, expected.state.span(), folded_inner).ok());
    EXPECT_EQ(folded, folded_inner);
  }
}

TEST(Zstd, WhatRoundsHandDownGoesThrough) {
  const VectorSchema schema{.layout = {.value_count = 300, .chunk_values = 300}, .tensors = {}};
  const auto inner = codec_of("onebit_adam:freeze=0,block=128");
  const auto codec = codec_of("onebit_adam:freeze=0,block=128,zstd=1");
  const auto momentum = test_values::encode(*codec_of("sign:block=128"), test_values::normals(300, 5), 300);
  Buffer last(inner->handed_bytes(schema, 0)), next(last.size());
  for (Buffer* const bytes : {&last, &next}) std::ranges::fill(bytes->span(), std::byte{0});
  std::ranges::copy(momentum.chunks[0].span(), last.data());
  ASSERT_TRUE(codec->continue_state(schema, {.run = 2}, last.span(), next.span()).ok());
  EXPECT_EQ(to_hex(next.span()), to_hex(last.span()));
  std::vector<float> residual(300, 1.0F), residual_inner(300, 1.0F);
  Buffer lent(codec->state_bytes(schema)), lent_inner(lent.size());
  for (Buffer* const bytes : {&lent, &lent_inner}) std::ranges::fill(bytes->span(), std::byte{0});
  ASSERT_TRUE(codec->lend_chunk(schema, {.round = 1}, 0, last.span(), residual, lent.span()).ok());
  ASSERT_TRUE(inner->lend_chunk(schema, {.round = 1}, 0, last.span(), residual_inner, lent_inner.span()).ok());
  EXPECT_EQ(residual, residual_inner);
  EXPECT_NE(residual[0], 1.0F);
  EXPECT_EQ(to_hex(lent.span()), to_hex(lent_inner.span()));
}

// Both passes of a round, from the vector to the mean update and the next state.
TEST(Zstd, SeveralPassesGoThrough) {
  constexpr std::uint64_t kRows = 40, kCols = 50;
  const std::uint64_t dims[] = {kRows, kCols};
  const TensorShape tensor{.dims = dims, .offset_values = 0};
  const VectorSchema schema{.layout = {.value_count = kRows * kCols, .chunk_values = 900}, .tensors = {&tensor, 1}};
  const StreamKey key{.run = 1, .round = 2, .site = 3};
  const auto vector = test_values::normals(kRows * kCols, 6);
  const auto all_of = [&](const std::string& text) {
    const auto codec = codec_of(text);
    Buffer state(codec->state_bytes(schema)), workspace(codec->workspace_bytes(schema));
    std::ranges::fill(state.span(), std::byte{0});
    std::vector<std::vector<float>> means;
    std::vector<float> left = vector;
    for (std::uint32_t pass = 0; pass < codec->passes(); ++pass) {
      const std::span<const float> reduced = pass == 0 ? std::span<const float>() : means.back();
      const auto plan =
          codec->prepare(schema, vector, key, {.pass = pass, .reduced = reduced}, state.span(), workspace.span());
      EXPECT_TRUE(plan.ok());
      for (std::size_t i = 0; i < plan->parts; ++i) EXPECT_TRUE(codec->prepare_part(*plan, i).ok());
      std::vector<float>& mean = means.emplace_back(plan->layout.value_count);
      for (std::size_t i = 0; i < plan->layout.chunk_count(); ++i) {
        const std::span<const float> chunk = plan->layout.of(plan->values, i);
        Buffer bytes(codec->encoded_bytes_max(chunk.size()));
        bytes.shrink(codec->encode_chunk(*plan, i, chunk, bytes.span()).value());
        EXPECT_TRUE(codec->decode_chunk(bytes.span(), plan->layout.of(std::span(mean), i)).ok());
      }
      if (pass + 1 < codec->passes()) continue;
      for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
        const std::span<float> chunk = schema.layout.of(std::span(left), i);
        EXPECT_TRUE(codec->leave_chunk(*plan, i, chunk, chunk).ok());
      }
    }
    const std::vector<std::span<const float>> views(means.begin(), means.end());
    Buffer room(codec->workspace_bytes(schema));
    const auto expanding = codec->prepare_expand(schema, views, room.span());
    EXPECT_TRUE(expanding.ok());
    std::vector<float> update(kRows * kCols);
    for (std::size_t i = 0; i < schema.layout.chunk_count(); ++i) {
      EXPECT_TRUE(codec->expand_chunk(*expanding, i, schema.layout.of(std::span(update), i)).ok());
    }
    Buffer next(state.size()), continued(state.size());
    for (Buffer* const bytes : {&next, &continued}) std::ranges::fill(bytes->span(), std::byte{0});
    EXPECT_TRUE(codec->settle(schema, key, means.back(), next.span()).ok());
    EXPECT_TRUE(codec->continue_state(schema, {.run = 9}, next.span(), continued.span()).ok());
    return std::tuple(update, left, to_hex(next.span()), to_hex(continued.span()));
  };
  EXPECT_EQ(all_of("powersgd:rank=2,zstd=1"), all_of("powersgd:rank=2"));
}

TEST(Zstd, ShortensWhatRepeatsAndStoresWhatDoesNot) {
  const std::vector<float> zeros(100'000, 0.0F);
  EXPECT_LT(test_values::encode(*codec_of("fp32:zstd=1"), zeros, zeros.size()).chunks[0].size(), 1'000U);
  Rng rng(4);
  std::vector<float> noise(10'000);  // every bit of the codes at random
  for (float& value : noise) value = std::bit_cast<float>(static_cast<std::uint32_t>(rng.next()) & 0xbfffffffU);
  const auto stored = test_values::encode(*codec_of("fp32:zstd=19"), noise, noise.size());
  const std::size_t size = stored.chunks[0].size();
  EXPECT_TRUE(size == 40'008 ? stored.chunks[0].data()[1] == std::byte{0} : size < 40'000) << size;
}

// Normally distributed values: the gain that the stage is for. Without the planes fp16 would gain about 1.08.
TEST(Zstd, GainOnNormalValues) {
  const auto vector = test_values::normals(1 << 18, 5, 0.01F);
  const auto gain = [&](const std::string& text) {
    const auto plain = test_values::encode(*codec_of(text), vector, vector.size()).chunks[0].size();
    const std::string with = text + (text.find(':') == std::string::npos ? ":" : ",") + "zstd=1";
    return static_cast<double>(plain) /
           static_cast<double>(test_values::encode(*codec_of(with), vector, vector.size()).chunks[0].size());
  };
  EXPECT_GT(gain("fp16"), 1.15);
  EXPECT_GT(gain("bf16"), 1.35);
  EXPECT_GT(gain("fp32"), 1.1);
  EXPECT_GT(gain("int8:block=2048"), 1.05);
  EXPECT_GT(gain("qsgd:levels=16"), 1.2);
  EXPECT_GT(gain("terngrad"), 1.1);
}

std::vector<std::byte> chunk_of(std::uint8_t form, std::uint8_t planes, std::uint32_t size, ByteSpan rest) {
  std::vector<std::byte> bytes(8, std::byte{0});
  bytes[0] = std::byte{1};
  bytes[1] = std::byte{form};
  bytes[2] = std::byte{planes};
  store_le(bytes.data() + 4, size);
  bytes.insert(bytes.end(), rest.begin(), rest.end());
  return bytes;
}

std::vector<std::byte> frame_of(ByteSpan content) {
  std::vector<std::byte> frame(ZSTD_compressBound(content.size()));
  frame.resize(ZSTD_compress(frame.data(), frame.size(), content.data(), content.size(), 3));
  return frame;
}

void expect_refused(const std::vector<std::byte>& bytes, std::size_t value_count, std::string_view reason) {
  const auto codec = codec_of("fp32:zstd=1");
  const auto screened = codec->screen_chunk(bytes, value_count, 0);
  ASSERT_FALSE(screened.ok()) << reason;
  EXPECT_EQ(screened.error().code, Code::kDataLoss);
  EXPECT_THAT(screened.error().message, HasSubstr(reason));
  std::vector<float> out(value_count);
  EXPECT_FALSE(codec->decode_chunk(bytes, out).ok());
  EXPECT_FALSE(codec->residual_chunk(out, bytes, out).ok());
  EXPECT_FALSE(codec->decode_add_chunk(bytes, 1.0F, out).ok());
  std::vector<std::int64_t> sum(value_count, 7);
  EXPECT_FALSE(codec->decode_accumulate_chunk(bytes, 1, 10, sum).ok());
  EXPECT_EQ(sum, std::vector<std::int64_t>(value_count, 7));
  EXPECT_FALSE(reference::decode("fp32:zstd=1", bytes, value_count).has_value());
}

TEST(Zstd, RefusesBombsAndDamage) {
  const std::vector<std::byte> zeros(400, std::byte{0});  // 100 values
  const auto frame = frame_of(zeros);
  ASSERT_TRUE(codec_of("fp32:zstd=1")->screen_chunk(chunk_of(1, 4, 400, frame), 100, 0).ok());
  ASSERT_TRUE(codec_of("fp32:zstd=1")->screen_chunk(chunk_of(0, 0, 400, zeros), 100, 0).ok());
  // A bomb is refused by its header, before anything is allocated; one whose header lies, by its frame.
  const std::vector<std::byte> many(std::size_t{64} << 20, std::byte{0});
  const auto bomb = frame_of(many);
  ASSERT_LT(bomb.size(), 10'000U);
  expect_refused(chunk_of(1, 1, 64U << 20, bomb), 100, "67108864 bytes decompressed, expected at most 400");
  expect_refused(chunk_of(1, 1, 0xffffffff, bomb), 100, "4294967295 bytes decompressed");
  expect_refused(chunk_of(1, 1, 400, bomb), 100, "does not say that it holds 400 bytes");
  expect_refused(chunk_of(1, 4, 396, frame), 100, "does not say that it holds 396 bytes");
  // A frame that says 400 bytes and expands to more: its size field changed.
  auto liar = frame_of(std::vector<std::byte>(500, std::byte{0}));
  std::size_t changed = 0;
  for (std::size_t i = 5; i + 1 < liar.size() && changed == 0; ++i) {
    if (load_le<std::uint16_t>(liar.data() + i) != 500 - 256) continue;  // RFC 8878: two-byte sizes are less 256
    store_le<std::uint16_t>(liar.data() + i, 400 - 256);
    changed = i;
  }
  ASSERT_NE(changed, 0U);
  ASSERT_EQ(ZSTD_getFrameContentSize(liar.data(), liar.size()), 400U);
  expect_refused(chunk_of(1, 1, 400, liar), 100, "the frame is damaged");
  // A frame without its content's size.
  std::vector<std::byte> unsized(1'000);
  ZSTD_CCtx* context = ZSTD_createCCtx();
  ZSTD_CCtx_setParameter(context, ZSTD_c_contentSizeFlag, 0);
  unsized.resize(ZSTD_compress2(context, unsized.data(), unsized.size(), zeros.data(), zeros.size()));
  ZSTD_freeCCtx(context);
  expect_refused(chunk_of(1, 1, 400, unsized), 100, "does not say that it holds 400 bytes");
  // Trailing bytes, a second frame, one that may be skipped, and a frame cut anywhere.
  auto longer = frame;
  longer.push_back(std::byte{0});
  expect_refused(chunk_of(1, 1, 400, longer), 100, "does not end with the chunk");
  auto twice = frame;
  twice.insert(twice.end(), frame.begin(), frame.end());
  expect_refused(chunk_of(1, 1, 400, twice), 100, "does not end with the chunk");
  const std::vector<std::byte> skipped = {std::byte{0x50}, std::byte{0x2a}, std::byte{0x4d}, std::byte{0x18},
                                          std::byte{0},    std::byte{0},    std::byte{0},    std::byte{0}};
  expect_refused(chunk_of(1, 1, 0, skipped), 100, "no zstd frame");
  for (std::size_t size = 0; size < frame.size(); ++size) {
    expect_refused(chunk_of(1, 1, 400, ByteSpan(frame).first(size)), 100, size < 4 ? "no zstd frame" : "the frame");
  }
}

TEST(Zstd, RefusesHeaders) {
  const std::vector<std::byte> zeros(400, std::byte{0});
  const auto frame = frame_of(zeros);
  const auto with = [&](std::size_t at, std::uint8_t value) {
    auto bytes = chunk_of(1, 4, 400, frame);
    bytes[at] = std::byte{value};
    return bytes;
  };
  expect_refused(with(0, 2), 100, "version");
  expect_refused(with(3, 1), 100, "version");
  expect_refused(with(1, 2), 100, "neither 0 (stored) nor 1 (compressed)");
  expect_refused(with(2, 0), 100, "0 planes, expected 1, 2 or 4");
  expect_refused(with(2, 3), 100, "3 planes");
  expect_refused(chunk_of(1, 4, 399, frame), 100, "399 bytes in 4 planes");
  expect_refused(chunk_of(0, 1, 400, zeros), 100, "stored in 1 planes");
  expect_refused(chunk_of(0, 0, 399, zeros), 100, "400 bytes, expected 399");
  expect_refused(chunk_of(0, 0, 396, ByteSpan(zeros).first(396)), 100, "chunk");
  expect_refused({std::byte{1}, std::byte{0}}, 100, "2 bytes, expected at least 8");
  // Sound as a frame, and no chunk inside.
  expect_refused(chunk_of(1, 4, 396, frame_of(ByteSpan(zeros).first(396))), 100, "396");
}

// Bytes pinned from libzstd 1.5.4, which any version reads: 64 values of 1.5, fp32 in four planes and bf16 in two.
TEST(Zstd, GoldenBytesAreRead) {
  const std::vector<float> expected(64, 1.5F);
  for (const auto& [text, hex] :
       {std::pair{"fp32:zstd=1", "010104000001000028b52ffd600000750000200000c03f0310009484d2dd2916"},
        {"bf16:zstd=1", "010102008000000028b52ffd20805d000018c0c03f020004929804b0"}}) {
    const Buffer bytes = from_hex(hex).value();
    std::vector<float> decoded(64);
    ASSERT_TRUE(codec_of(text)->decode_chunk(bytes.span(), decoded).ok()) << text;
    EXPECT_EQ(decoded, expected);
    EXPECT_TRUE(reference::decode(text, bytes.span(), 64).has_value());
  }
  const float stored[] = {1.0F};  // too short to compress
  EXPECT_EQ(to_hex(test_values::encode(*codec_of("fp32:zstd=1"), stored, 1).chunks[0].span()),
            "01000000040000000000803f");
}

#endif

}  // namespace
}  // namespace fluvial::kernels
