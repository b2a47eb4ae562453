#include "core/round/byte_ranges.h"

#include <gtest/gtest.h>

#include "core/base/rng.h"

namespace fluvial::round {
namespace {

ByteRanges of(std::initializer_list<ByteRange> list) {
  ByteRanges set;
  for (const ByteRange& range : list) EXPECT_TRUE(set.add(range).ok());
  return set;
}

TEST(ByteRanges, RangesThatTouchAreOne) {
  ByteRanges set = of({{8, 4}, {0, 4}, {16, 4}});
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{0, 4}, {8, 4}, {16, 4}}));
  EXPECT_TRUE(set.add({4, 4}).ok());
  EXPECT_TRUE(set.add({12, 4}).ok());
  EXPECT_EQ(set.ranges(), (std::vector<ByteRange>{{0, 20}}));
  EXPECT_TRUE(set.add({7, 0}).ok()) << "nothing";
  EXPECT_EQ(set, ByteRanges::whole(20));
}

TEST(ByteRanges, NamesTheFirstByteThatIsThereAlready) {
  ByteRanges set = of({{8, 8}, {24, 8}});
  EXPECT_EQ(set.add({4, 8}).error().message, "byte 8 is given twice");
  EXPECT_EQ(set.add({12, 2}).error().message, "byte 12 is given twice");
  EXPECT_EQ(set.add({16, 12}).error().message, "byte 24 is given twice");
  EXPECT_EQ(set, of({{8, 8}, {24, 8}})) << "nothing was added";
}

TEST(ByteRanges, JoinKeepAndCoverAgreeWithSetsOfBytes) {
  Rng rng(4);
  for (int turn = 0; turn < 500; ++turn) {
    std::vector<bool> bits[2] = {std::vector<bool>(64), std::vector<bool>(64)};
    ByteRanges sets[2];
    for (int which = 0; which < 2; ++which) {
      for (int i = 0; i < 6; ++i) {
        const ByteRange range{rng.below(60), 1 + rng.below(4)};
        if (!sets[which].add(range).ok()) continue;
        for (std::uint64_t at = range.first_byte; at < range.end(); ++at) bits[which][at] = true;
      }
    }
    ByteRanges joined = sets[0];
    joined.join(sets[1]);
    ByteRanges kept = sets[0];
    kept.keep(sets[1]);
    bool covered = true;
    for (std::uint64_t at = 0; at < 64; ++at) {
      ASSERT_EQ(sets[0].covers({at, 1}), bits[0][at]);
      ASSERT_EQ(joined.covers({at, 1}), bits[0][at] || bits[1][at]);
      ASSERT_EQ(kept.covers({at, 1}), bits[0][at] && bits[1][at]);
      covered = covered && (bits[0][at] || !bits[1][at]);
    }
    ASSERT_EQ(sets[0].covers(sets[1]), covered);
    ASSERT_TRUE(joined.covers(sets[0]) && joined.covers(sets[1]) && sets[0].covers(kept));
  }
}

TEST(ByteRanges, LieWithinTheModelAndBetweenValues) {
  const Schema schema =
      Schema::make(
          {{"flags", DType::kBool, {3}}, {"w", DType::kF32, {2}}, {"none", DType::kF32, {0}}, {"n", DType::kI64, {1}}})
          .value();  // bytes 0, 1, 2 | 3, 7 | 11
  for (const ByteRange& good : {ByteRange{0, 19}, {1, 2}, {3, 4}, {2, 5}, {7, 12}, {19, 0}, {11, 8}}) {
    EXPECT_TRUE(check_range(schema, good).ok()) << good.first_byte;
  }
  EXPECT_EQ(check_range(schema, {4, 7}).error().message, "a range of 7 bytes from byte 4 cuts a value at byte 4");
  EXPECT_EQ(check_range(schema, {3, 12}).error().message, "a range of 12 bytes from byte 3 cuts a value at byte 15");
  EXPECT_EQ(check_range(schema, {11, 9}).error().message,
            "a range of 9 bytes from byte 11 reaches beyond the model's 19");
  EXPECT_FALSE(check_range(schema, {20, 0}).ok());
  EXPECT_FALSE(check_range(schema, {8, ~std::uint64_t{0}}).ok());
}

TEST(ByteRanges, TilesNameTheFirstByteMissingOrTwice) {
  const ByteRanges odd = of({{0, 4}, {8, 4}});
  const std::vector<ByteRanges> whole = {odd, of({{4, 4}, {12, 4}}), {}};
  EXPECT_TRUE(check_tiles(whole, 16).ok());
  EXPECT_EQ(check_tiles(whole, 20).error().message, "byte 16 of the model is given by none");
  EXPECT_EQ(check_tiles(std::vector<ByteRanges>{odd}, 12).error().message, "byte 4 of the model is given by none");
  EXPECT_EQ(check_tiles(std::vector<ByteRanges>{odd, of({{4, 8}})}, 12).error().message,
            "byte 8 of the model is given twice");
  EXPECT_EQ(check_tiles(std::vector<ByteRanges>{odd, odd}, 12).error().message, "byte 0 of the model is given twice");
  EXPECT_EQ(check_tiles({}, 12).error().message, "byte 0 of the model is given by none");
  EXPECT_TRUE(check_tiles({}, 0).ok());
}

}  // namespace
}  // namespace fluvial::round
