#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <limits>

#include "kernels/fixed.h"
#include "kernels/reference/reference.h"
#include "kernels/test_values.h"

namespace fluvial::kernels {
namespace {

using ::testing::HasSubstr;
using Sums = std::vector<std::int64_t>;
constexpr std::int64_t kMin = std::numeric_limits<std::int64_t>::min();
constexpr std::int64_t kMax = std::numeric_limits<std::int64_t>::max();

Buffer pack(const Sums& sums) {
  Buffer packed(packed_bytes_max(sums.size()));
  packed.shrink(pack_chunk(sums, packed.span()));
  return packed;
}

void expect_round_trip(const Sums& sums) {
  const Buffer packed = pack(sums);
  ASSERT_EQ(reference::unpack(packed.span(), sums.size()), sums);
  ASSERT_TRUE(check_packed_chunk(packed.span(), sums.size()).ok());
  Sums merged(sums.size(), 0);
  const Status status = merge_chunk(packed.span(), merged);
  ASSERT_TRUE(status.ok()) << status.error().message;
  ASSERT_EQ(merged, sums);
}

TEST(Partial, RoundTripsAtEveryWidthDensityAndLength) {
  Rng rng(1);
  for (const std::size_t length : {0U, 1U, 2U, 7U, 8U, 9U, 100U, 2'048U, 5'000U}) {
    for (int bits = 0; bits <= 63; ++bits) {
      for (const std::uint64_t one_in : {1U, 3U, 50U}) {
        Sums sums(length, 0);
        for (std::int64_t& sum : sums) {
          const auto value = bits == 0 ? 0 : static_cast<std::int64_t>(rng.next() >> (64 - bits));
          if (rng.below(one_in) == 0) sum = rng.below(2) == 0 ? value : ~value;
        }
        expect_round_trip(sums);
      }
    }
  }
  expect_round_trip({kMin, kMax, 0, -1});
}

TEST(Partial, TakesTheNarrowestFormThatFits) {
  const auto bytes_of = [](std::int64_t value, std::size_t count) { return pack(Sums(count, value)).size(); };
  EXPECT_EQ(bytes_of(0, 1'000), 16U);
  EXPECT_EQ(bytes_of(127, 1'000), 16U + 1'000);
  EXPECT_EQ(bytes_of(-128, 1'000), 16U + 1'000);
  EXPECT_EQ(bytes_of(128, 1'000), 16U + 2'000);
  EXPECT_EQ(bytes_of(-129, 1'000), 16U + 2'000);
  EXPECT_EQ(bytes_of((1LL << 39) - 1, 1'000), 16U + 5'000);
  EXPECT_EQ(bytes_of(1LL << 39, 1'000), 16U + 6'000);
  EXPECT_EQ(bytes_of(kMin, 1'000), 16U + 8'000);
  Sums sparse(1'000, 0);
  sparse[5] = sparse[900] = 1LL << 39;
  EXPECT_EQ(pack(sparse).size(), 16U + 2 * 6 + 2 + 1 + 0);
}

// The bytes that other versions and machines read: docs/formats/codecs.md.
TEST(Partial, GoldenBytes) {
  EXPECT_EQ(to_hex(pack({1, -2, 300}).span()), "020002000300000003000000000000000100feff2c01");
  EXPECT_EQ(to_hex(pack({0, 0, 0}).span()), "02000000030000000300000000000000");
  Sums sparse(200, 0);
  sparse[2] = -3;
  sparse[199] = 70'000;
  EXPECT_EQ(to_hex(pack(sparse).span()), "02010306c80000000200000003000000fdffff701101020111");
}

TEST(Partial, MergingAddsExactly) {
  Rng rng(2);
  Sums expected(3'000, 0);
  Sums merged(3'000, 0);
  for (int part = 0; part < 40; ++part) {
    Sums sums(3'000, 0);
    for (std::size_t i = 0; i < sums.size(); ++i) {
      if (rng.below(static_cast<std::uint64_t>(1 + part)) == 0)
        sums[i] = static_cast<std::int64_t>(rng.next()) >> (8 + rng.below(50));
      expected[i] += sums[i];
    }
    ASSERT_TRUE(merge_chunk(pack(sums).span(), merged).ok());
  }
  EXPECT_EQ(merged, expected);
}

TEST(Partial, OverflowIsRefusedAndUndone) {
  for (const bool sparse : {false, true}) {
    Sums sums(6'000, 0);
    for (std::size_t i = 0; i < sums.size(); i += sparse ? 100 : 1) sums[i] = static_cast<std::int64_t>(i) + kMax / 2;
    Sums held(6'000, 3);
    held[5'900] = kMax / 2 + 2;
    const Sums before = held;
    const Status status = merge_chunk(pack(sums).span(), held);
    ASSERT_FALSE(status.ok());
    EXPECT_EQ(status.error().code, Code::kDataLoss);
    EXPECT_THAT(status.error().message, HasSubstr("left int64"));
    EXPECT_EQ(held, before);
  }
}

TEST(Partial, HostileBytesAreRefusedWithoutEffect) {
  const std::pair<const char*, const char*> cases[] = {
      {"", "shorter than its header"},
      {"020002000300000003000000000000", "shorter than its header"},
      {"010002000300000003000000000000000100feff2c01", "version 1"},
      {"020202000300000003000000000000000100feff2c01", "form 2"},
      {"020009000300000003000000000000000100feff2c01", "width 9"},
      {"020002010300000003000000000000000100feff2c01", "form 0"},
      {"020002000400000003000000000000000100feff2c01", "4 values, expected 3"},
      {"020002000300000002000000000000000100feff2c01", "2 entries"},
      {"020002000300000003000000010000000100feff2c01", "1 index bytes"},
      {"020002000300000003000000000000000100feff2c", "do not fit"},
      {"020002000300000003000000000000000100feff2c0100", "do not fit"},
      {"020101000300000004000000000000000000000000", "4 entries"},
      {"02010800030000000100000000000000", "do not fit"},
      {"02010100030000000100000001000000ff08", "the last index is 3, expected below 3"},
      {"02010100030000000200000001000000ff0309", "the last index is 3"},
      {"02010101030000000200000002000000ff030303", "the last index is 3"},
      {"0201010003000000020000000100000001010f", "4 indices, expected 2"},
      {"02010100030000000200000001000000010102", "end after 1 of 2 indices"},
      {"02010100030000000100000002000000010100", "too many for 1 indices"},
      {"0201011b03000000010000000500000001ffffff0701", "27 low bits"},
      {"0201010103000000010000000200000001fe01", "not zero after"},
      {"020100000300000003000000ffffffff00", "do not fit"},
  };
  for (const auto& [hex, reason] : cases) {
    const Buffer bytes = from_hex(hex).value();
    Sums sums = {1, 2, 3};
    const Status merged = merge_chunk(bytes.span(), sums);
    ASSERT_FALSE(merged.ok()) << hex;
    EXPECT_EQ(merged.error().code, Code::kDataLoss);
    EXPECT_THAT(merged.error().message, HasSubstr(reason)) << hex;
    EXPECT_FALSE(check_packed_chunk(bytes.span(), 3).ok());
    EXPECT_EQ(sums, (Sums{1, 2, 3}));
    EXPECT_FALSE(reference::unpack(bytes.span(), 3).has_value()) << hex;
  }
}

TEST(Partial, RandomBytesNeverDisagreeWithTheReference) {
  Rng rng(3);
  std::size_t accepted = 0;
  for (int round = 0; round < 20'000; ++round) {
    Sums sums(1 + rng.below(40), 0);
    for (std::int64_t& sum : sums) {
      if (rng.below(3) == 0) sum = static_cast<std::int64_t>(rng.next()) >> (2 + rng.below(62));
    }
    Buffer packed = pack(sums);
    packed.data()[rng.below(packed.size())] ^= static_cast<std::byte>(1 << rng.below(8));
    const auto expected = reference::unpack(packed.span(), sums.size());
    Sums merged(sums.size(), 0);
    const bool ok = merge_chunk(packed.span(), merged).ok();
    ASSERT_EQ(ok, expected.has_value());
    if (ok) {
      ASSERT_EQ(merged, *expected);
    }
    accepted += ok ? 1 : 0;
  }
  EXPECT_GT(accepted, 1'000U);
}

}  // namespace
}  // namespace fluvial::kernels
