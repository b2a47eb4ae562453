// Bytes that no encoder of ours writes are refused, by every function that reads them, with a reason and no effect.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "kernels/fixed.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using test_values::codec_of;
using test_values::other_settings;
using ::testing::HasSubstr;

std::vector<std::byte> bytes_of(std::string_view hex) {
  const Buffer buffer = from_hex(hex).value();
  return {buffer.data(), buffer.data() + buffer.size()};
}

void expect_refused(const Codec& codec, ByteSpan bytes, std::size_t value_count, std::string_view reason) {
  const auto screened = codec.screen_chunk(bytes, value_count, 0);
  ASSERT_FALSE(screened.ok()) << reason;
  EXPECT_EQ(screened.error().code, Code::kDataLoss);
  EXPECT_THAT(screened.error().message, HasSubstr(reason));
  std::vector<std::int64_t> sum(value_count, 7);
  EXPECT_FALSE(codec.decode_accumulate_chunk(bytes, 1, 10, sum).ok());
  EXPECT_EQ(sum, std::vector<std::int64_t>(value_count, 7));
  EXPECT_FALSE(reference::decode(to_string(codec.spec()), bytes, value_count).has_value());
}

// Malformed, not merely not finite: decoding and the residual refuse it too.
void expect_malformed(const Codec& codec, ByteSpan bytes, std::size_t value_count, std::string_view reason) {
  expect_refused(codec, bytes, value_count, reason);
  std::vector<float> out(value_count);
  const std::vector<float> values(value_count);
  EXPECT_FALSE(codec.decode_chunk(bytes, out).ok());
  EXPECT_FALSE(codec.residual_chunk(values, bytes, out).ok());
}

TEST(HostileBytes, EveryTruncationAndExtensionIsRefused) {
  const auto vector = test_values::normals(300, 1);
  for (const std::string& text : test_values::codec_texts()) {
    const auto codec = codec_of(text);
    const auto encoded = test_values::encode(*codec, vector, 300);
    const ByteSpan whole = encoded.chunks[0].span();
    for (std::size_t size = 0; size < whole.size(); ++size) {
      EXPECT_FALSE(codec->screen_chunk(whole.first(size), 300, 0).ok()) << text << " " << size;
    }
    std::vector<std::byte> longer(whole.begin(), whole.end());
    longer.push_back(std::byte{0});
    EXPECT_FALSE(codec->screen_chunk(longer, 300, 0).ok()) << text;
    const CodecKind kind = codec->spec().kind;
    // A short sparse chunk may fit another count, and a bit too many may be zero.
    const bool sparse = kind == CodecKind::kTopk || kind == CodecKind::kRandk || kind == CodecKind::kDgc;
    const bool nibbles = kind == CodecKind::kRing && codec->spec().bits <= 4;        // whose last code may be 0
    const bool bits = kind == CodecKind::kSign || codec->spec().freeze_rounds == 1;  // likewise
    if (!bits && !nibbles && (!sparse || codec->spec().ratio == 1)) {
      EXPECT_FALSE(codec->screen_chunk(whole, 299, 0).ok()) << text;
    }
  }
}

TEST(HostileBytes, WhatIsNotFiniteIsNamed) {
  for (const char* text : {"fp32", "fp16", "bf16", "topk:ratio=1", "dgc:ratio=1", "randk:ratio=1"}) {
    const auto codec = codec_of(text);
    for (const float poison : {std::numeric_limits<float>::quiet_NaN(), std::numeric_limits<float>::infinity(),
                               -std::numeric_limits<float>::infinity()}) {
      for (const std::size_t at : {0U, 17U, 4'999U}) {
        std::vector<float> vector(5'000, 1.0F);
        const auto encoded = test_values::encode(*codec, vector, 5'000);
        std::vector<std::byte> bytes(encoded.chunks[0].span().begin(), encoded.chunks[0].span().end());
        const bool fp16 = codec->spec().kind == CodecKind::kFp16;
        const bool listed = codec->spec().kind == CodecKind::kTopk || codec->spec().kind == CodecKind::kDgc;
        const std::size_t header = listed ? 8 : codec->spec().kind == CodecKind::kRandk ? 16 : 0;
        const std::size_t width = fp16 || codec->spec().kind == CodecKind::kBf16 ? 2 : 4;
        std::uint32_t bits = std::bit_cast<std::uint32_t>(poison);
        if (fp16) bits = (bits >> 16 & 0x8000U) | (std::isnan(poison) ? 0x7e00U : 0x7c00U);
        if (codec->spec().kind == CodecKind::kBf16) bits >>= 16;
        for (std::size_t i = 0; i < width; ++i) {
          bytes[header + width * at + i] = static_cast<std::byte>(bits >> (8 * i) & 0xff);
        }
        expect_refused(*codec, bytes, 5'000,
                       "value " + std::to_string(at) + (std::isnan(poison) ? " is NaN" : " is infinite"));
        EXPECT_THAT(codec->screen_chunk(bytes, 5'000, 1'000'000).error().message,
                    HasSubstr("value " + std::to_string(1'000'000 + at)));
      }
    }
  }
}

TEST(HostileBytes, Int8) {
  const auto codec = codec_of("int8:block=128,rounding=nearest");
  const auto refused = [&](std::string_view hex, std::string_view reason) {
    expect_malformed(*codec, bytes_of(hex), 4, reason);
  };
  ASSERT_TRUE(codec->screen_chunk(bytes_of("01008000000000008542a13c3381000a"), 4, 0).ok());
  refused("02008000000000008542a13c3381000a", "version");
  refused("01018000000000008542a13c3381000a", "version");
  refused("01008000000001008542a13c3381000a", "version");
  refused("01004000000000008542a13c3381000a", "blocks of 64 values");
  refused("01008000000000000000c07f3381000a", "scale of block 0, values 0 to 3");
  refused("01008000000000000000807f3381000a", "not finite");
  refused("0100800000000000000080bf3381000a", "negative or not finite");
  refused("0100800000000000000000803381000a", "negative or not finite");
  refused("01008000000000008542a13c3381800a", "value 2 has code -128");
  expect_refused(*codec, bytes_of("0100800000000000ffff7f7f3381000a"), 4,
                 "value 0 is infinite");  // 51 * the largest fp32
}

TEST(HostileBytes, Sign) {
  const auto codec = codec_of("sign:block=131");
  const std::string one = "0000803f";
  const std::string head = "0100830000000000";
  const std::string first = std::string(32, 'f') + "07";
  const std::string bits = first + "0f";
  const auto refused = [&](const std::string& hex, std::string_view reason) {
    expect_malformed(*codec, bytes_of(hex), 135, reason);
  };
  ASSERT_TRUE(codec->screen_chunk(bytes_of(head + one + one + bits), 135, 0).ok());
  refused("0200830000000000" + one + one + bits, "version");
  refused("0100830000000100" + one + one + bits, "version");
  refused("0101830000000000" + one + one + bits, "mode 1, expected 0 (scaled)");
  refused("0102830000000000" + one + one + bits, "mode 2");
  refused("0100000000000000" + one + one + bits, "blocks of 0 values, expected 131");
  refused(head + one + "0000807f" + bits, "the scale of block 1, values 131 to 134");
  refused(head + "0000c07f" + one + bits, "the scale of block 0, values 0 to 130");
  refused(head + one + "00000080" + bits, "negative or not finite");
  refused(head + one + one + std::string(32, 'f') + "0f" + "0f", "bits are set after value 130, the last of its block");
  refused(head + one + one + first + "1f", "bits are set after value 134");
  refused(head + one + one + first, "expected 34");
}

TEST(HostileBytes, SignByVote) {
  const auto vote = codec_of("sign:mode=vote");
  const std::string head = "0101000000000000";
  ASSERT_TRUE(vote->screen_chunk(bytes_of(head + "ff07"), 11, 0).ok());
  expect_malformed(*vote, bytes_of(head + "ff0f"), 11, "bits are set after value 10");
  expect_malformed(*vote, bytes_of("0101000100000000ff07"), 11, "blocks of 256 values, expected 0");
  EXPECT_FALSE(vote->screen_chunk(bytes_of("0100000000000000ff07"), 11, 0).ok());
}

TEST(HostileBytes, Int4) {
  const auto codec = codec_of("int4:block=128,rounding=nearest");
  const auto refused = [&](std::string_view hex, std::string_view reason, std::size_t value_count) {
    expect_malformed(*codec, bytes_of(hex), value_count, reason);
  };
  ASSERT_TRUE(codec->screen_chunk(bytes_of("01008000000000006edbb63e9310"), 4, 0).ok());
  ASSERT_TRUE(codec->screen_chunk(bytes_of("01008000000000006edbb63e9301"), 3, 0).ok());
  refused("02008000000000006edbb63e9310", "version", 4);
  refused("01018000000000006edbb63e9310", "version", 4);
  refused("01008000010000006edbb63e9310", "version", 4);
  refused("01004000000000006edbb63e9310", "blocks of 64 values", 4);
  refused("01008100000000006edbb63e9310", "blocks of 129 values", 4);
  refused("01008000000000000000807f9310", "scale of block 0, values 0 to 3, is negative or not finite", 4);
  refused("01008000000000006edbb6be9310", "negative or not finite", 4);
  refused("01008000000000006edbb63e9380", "value 3 has code -8, expected -7 to 7", 4);
  refused("01008000000000006edbb63e9318", "value 2 has code -8", 4);
  refused("01008000000000006edbb63e9310", "a code after the last, value 2", 3);
  refused("01008000000000006edbb63e9381", "a code after the last, value 2", 3);
  refused("01008000000000006edbb63e93", "13 bytes, expected 14", 4);
  expect_refused(*codec, bytes_of("0100800000000000ffff7f7f9310"), 4, "value 0 is infinite");  // 3 * the largest fp32
}

TEST(HostileBytes, Topk) {
  const auto codec = codec_of("topk:ratio=0.5");
  const auto refused = [&](std::string_view hex, std::string_view reason, std::size_t value_count = 4) {
    expect_malformed(*codec, bytes_of(hex), value_count, reason);
  };
  ASSERT_TRUE(codec->screen_chunk(bytes_of("02000000020000000000803f000020c003"), 4, 0).ok());
  ASSERT_TRUE(
      codec->screen_chunk(bytes_of("02010000020000000000803f000020c00203"), 4, 0).ok());  // 0, 2 in another form
  refused("02000000", "shorter than its header");
  refused("01000000020000000000803f000020c003", "version 1");
  refused("02000100020000000000803f000020c003", "reserved");
  refused("02000000050000000000803f000020c003", "5 entries for 4 values");
  refused("02000000ffffffff0000803f000020c003", "entries for 4 values");
  refused("02000000020000000000803f", "12 bytes, too few for 2 entries");
  refused("021b0000020000000000803f000020c0ffffffffffff3f03", "27 low bits, expected 0 to 26");
  refused("02010000020000000000803f000020c0", "0 index bytes, too few for 2 indices");
  refused("02000000020000000000803f000020c00300", "too many for 2 indices below 4");
  refused("02000000000000000000", "2 index bytes, too many for 0 indices");
  refused("02010000020000000000803f000020c00403", "bits that are not zero after");
  refused("02000000020000000000803f000020c001", "end after 1 of 2 indices");
  refused("02000000020000000000803f000020c007", "3 indices, expected 2");
  refused("02000000020000000000803f000020c00300", "index bytes after the last index", 40);
  refused("02000000020000000000803f000020c011", "the last index is 4, expected below 4");
  refused("02000000020000000000803f000020c018", "the last index is 4, expected below 4");
  refused("02010000020000000000803f000020c00306", "the last index is 5, expected below 4");
  refused("021a0000020000000000803f000020c0ffffffffffff0f03", "expected below 4");  // gaps of 2^26 - 1
}

// A flipped bit is found, or it decodes to something finite that the reference reads alike.
TEST(HostileBytes, FlippedBitsNeverDisagreeWithTheReference) {
  const auto vector = test_values::normals(200, 8);
  for (const std::string& text : test_values::codec_texts()) {
    const auto codec = codec_of(text);
    const auto encoded = test_values::encode(*codec, vector, 200);
    std::vector<std::byte> bytes(encoded.chunks[0].span().begin(), encoded.chunks[0].span().end());
    for (std::size_t bit = 0; bit < 8 * bytes.size(); ++bit) {
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
      const auto expected = reference::decode(text, bytes, 200);
      const auto screened = codec->screen_chunk(bytes, 200, 0);
      ASSERT_EQ(screened.ok(), expected.has_value() && !other_settings(*codec, bytes, 200)) << text << " bit " << bit;
      if (screened.ok()) {
        std::vector<float> decoded(200);
        ASSERT_TRUE(codec->decode_chunk(bytes, decoded).ok());
        for (std::size_t i = 0; i < 200; ++i) ASSERT_EQ(static_cast<double>(decoded[i]), (*expected)[i]);
      }
      bytes[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    }
  }
}

TEST(HostileBytes, RandomBytesNeverDisagreeWithTheReference) {
  Rng rng(5);
  for (const std::string& text : test_values::codec_texts()) {
    const auto codec = codec_of(text);
    for (int round = 0; round < 3'000; ++round) {
      std::vector<std::byte> bytes(rng.below(64));
      for (std::byte& byte : bytes) byte = static_cast<std::byte>(rng.below(4) == 0 ? rng.below(256) : rng.below(3));
      const std::size_t value_count = rng.below(20);
      const auto expected = reference::decode(text, bytes, value_count);
      ASSERT_EQ(codec->screen_chunk(bytes, value_count, 0).ok(),
                expected.has_value() && !other_settings(*codec, bytes, value_count));
    }
  }
}

}  // namespace
}  // namespace fluvial::kernels
