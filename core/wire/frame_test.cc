#include "core/wire/frame.h"

#include <gtest/gtest.h>

#include <array>
#include <cstring>
#include <string>

#include "core/base/rng.h"

namespace fluvial::wire {
namespace {

using Prefix = std::array<std::byte, kPrefixBytes>;

Prefix encoded(std::uint32_t header_bytes, std::uint32_t payload_bytes) {
  Prefix bytes;
  encode_prefix({header_bytes, payload_bytes}, bytes);
  return bytes;
}

std::string hex(ByteSpan bytes) { return to_hex(bytes); }

TEST(Frame, GoldenPrefix) {  // as docs/formats/frame.md shows it
  EXPECT_EQ(hex(encoded(0x0a, 0x00400000)), "464c56310a0000000000400000000000");
}

TEST(Frame, PrefixComesBack) {
  for (const std::uint32_t header : {1u, 2u, 255u, kHeaderBytesMax}) {
    for (const std::uint32_t payload : {0u, 1u, 65'536u, kPayloadBytesMax}) {
      const auto prefix = decode_prefix(encoded(header, payload), {});
      ASSERT_TRUE(prefix.ok()) << prefix.error().to_string();
      EXPECT_EQ(*prefix, (FramePrefix{header, payload}));
    }
  }
}

TEST(Frame, PrefixNamesWhatIsWrong) {
  PrefixFault fault = PrefixFault::kNone;
  const auto code = [&](const Prefix& bytes, const FrameLimits& limits = {}) {
    return decode_prefix(bytes, limits, &fault).error().code;
  };
  EXPECT_EQ(code(encoded(kHeaderBytesMax + 1, 0)), Code::kResourceExhausted);
  EXPECT_EQ(fault, PrefixFault::kOversizeHeader);
  EXPECT_EQ(code(encoded(1, kPayloadBytesMax + 1)), Code::kResourceExhausted);
  EXPECT_EQ(fault, PrefixFault::kOversizePayload);
  EXPECT_EQ(code(encoded(101, 0), {100, 100}), Code::kResourceExhausted);
  EXPECT_EQ(code(encoded(0, 5)), Code::kDataLoss);
  EXPECT_EQ(fault, PrefixFault::kNotAFrame);
  for (const std::size_t at : {0u, 1u, 2u, 3u, 12u, 13u, 14u, 15u}) {  // magic and the reserved bytes
    Prefix bytes = encoded(1, 1);
    bytes[at] ^= std::byte{1};
    EXPECT_EQ(code(bytes), Code::kDataLoss) << at;
    EXPECT_EQ(fault, PrefixFault::kNotAFrame);
  }
}

v1::Envelope some_header() {
  v1::Envelope header;
  auto& commit = *header.mutable_round_commit();
  commit.set_run(3);
  commit.mutable_model()->set_sha256(std::string(32, 'x'));
  for (std::uint32_t site = 1; site < 50; ++site) {
    auto& contributor = *commit.add_contributors();
    contributor.set_site(site);
    contributor.set_sha256(std::string(32, 'y'));
    (*contributor.mutable_metrics())["loss"] = 0.5;
  }
  return header;
}

TEST(Frame, HeaderComesBack) {
  const auto head = encode_head(some_header(), 77, {});
  ASSERT_TRUE(head.ok());
  const auto prefix = decode_prefix(std::span<const std::byte, kPrefixBytes>(head->data(), kPrefixBytes), {});
  ASSERT_TRUE(prefix.ok());
  EXPECT_EQ(prefix->payload_bytes, 77u);
  ASSERT_EQ(prefix->header_bytes, head->size() - kPrefixBytes);
  const auto header = parse_header(head->span().subspan(kPrefixBytes));
  ASSERT_TRUE(header.ok()) << header.error().to_string();
  EXPECT_EQ(header->SerializeAsString(), some_header().SerializeAsString());
}

TEST(Frame, TooLargeToSend) {
  v1::Envelope header;
  header.mutable_goodbye()->set_message(std::string(200, 'x'));
  EXPECT_EQ(encode_head(header, 0, {100, 100}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(encode_head(header, 101, {1000, 100}).error().code, Code::kInvalidArgument);
  EXPECT_EQ(encode_head(v1::Envelope(), 0, {}).error().code, Code::kInvalidArgument);
}

TEST(Frame, UnknownFieldsPassAndUnknownMessagesDoNot) {
  v1::Envelope header = some_header();
  std::string bytes = header.SerializeAsString();
  bytes += std::string(
      "\xfa\x7f\x03"
      "new",
      6);  // field 2047, a string: from a newer peer
  EXPECT_TRUE(parse_header(as_byte_span(bytes)).ok());
  EXPECT_EQ(parse_header(as_byte_span(std::string_view("\xfa\x7f\x03"
                                                       "new",
                                                       6)))
                .error()
                .code,
            Code::kDataLoss);
  EXPECT_EQ(parse_header({}).error().code, Code::kDataLoss);
}

TEST(Frame, ManySmallMessagesAreNoBomb) {
  std::string inner;
  for (int i = 0; i < 1'000'000; ++i) inner += std::string("\x2a\x00", 2);  // RoundCommit.contributors: an empty one
  std::string bytes = "\xfa\x01";                                           // Envelope.round_commit
  for (std::size_t size = inner.size(); size > 0; size >>= 7) {
    bytes.push_back(static_cast<char>((size & 0x7f) | (size > 0x7f ? 0x80 : 0)));
  }
  bytes += inner;
  const auto header = parse_header(as_byte_span(bytes));
  ASSERT_FALSE(header.ok());
  EXPECT_EQ(header.error().code, Code::kDataLoss);
}

TEST(Frame, DeepNestingIsRefused) {
  std::string groups(100'000, '\x9b');  // unknown groups inside each other
  for (std::size_t i = 1; i < groups.size(); i += 2) groups[i] = '\x06';
  EXPECT_FALSE(parse_header(as_byte_span(groups)).ok());
}

TEST(Frame, DamagedHeadersNeverCrash) {
  const std::string good = some_header().SerializeAsString();
  Rng rng(5);
  for (int i = 0; i < 20'000; ++i) {
    std::string bytes = good.substr(0, rng.below(4) == 0 ? rng.below(good.size()) : good.size());
    for (std::uint64_t damage = rng.below(4); damage > 0 && !bytes.empty(); --damage) {
      bytes[rng.below(bytes.size())] = static_cast<char>(rng.next());
    }
    const auto header = parse_header(as_byte_span(bytes));
    if (!header.ok()) EXPECT_EQ(header.error().code, Code::kDataLoss);
  }
  for (int i = 0; i < 20'000; ++i) {
    std::string noise(rng.below(64), '\0');
    for (char& c : noise) c = static_cast<char>(rng.next());
    (void)parse_header(as_byte_span(noise));
  }
}

}  // namespace
}  // namespace fluvial::wire
