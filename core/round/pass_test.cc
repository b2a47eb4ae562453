#include "core/round/pass.h"

#include <gtest/gtest.h>

#include "core/round/schema.h"

namespace fluvial::round {
namespace {

constexpr VectorRef kVector{{std::byte{7}}, 64};

Pass pass(std::uint32_t index, std::uint32_t count, std::optional<VectorRef> mean = {},
          std::optional<VectorRef> state = {}) {
  return {.index = index, .count = count, .value_count = 9, .mean = mean, .state = state};
}

TEST(Pass, OfARoundThatHasSeveral) {
  EXPECT_TRUE(check_pass(pass(0, 2)).ok());
  EXPECT_TRUE(check_pass(pass(1, 2, kVector)).ok());
  EXPECT_TRUE(check_pass(pass(1, 2, kVector, kVector)).ok());
  EXPECT_FALSE(pass(0, 2).is_last());
  EXPECT_TRUE(pass(1, 2).is_last());
}

TEST(Pass, TheOnlyOneMayBeginWithACodecsState) {
  EXPECT_TRUE(check_pass(pass(0, 1)).ok());
  EXPECT_TRUE(check_pass(pass(0, 1, {}, kVector)).ok());
  EXPECT_TRUE(pass(0, 1).is_last());
  EXPECT_EQ(pass(0, 1, {}, kVector).made_from(), MadeFrom());
}

TEST(Pass, WhatNoRoundHasIsRefused) {
  for (const Pass& wrong : {pass(0, 0), pass(1, 1, kVector), pass(0, kPassesMost + 1), pass(2, 2, kVector),
                            pass(1, 3, kVector), pass(1, 2), pass(0, 2, kVector)}) {
    EXPECT_EQ(check_pass(wrong).error().code, Code::kInvalidArgument) << wrong.index << " of " << wrong.count;
  }
  Pass empty = pass(0, 2);
  empty.value_count = 0;
  EXPECT_FALSE(check_pass(empty).ok());
}

TEST(Pass, PeopleCountFromOne) {
  EXPECT_EQ(pass_name(0), "pass 1");
  EXPECT_EQ(check_pass(pass(1, 2)).error().message, "pass 2 without the mean before it");
}

TEST(Pass, AVectorHasTheLengthOfOne) {
  for (const std::uint64_t bytes : {std::uint64_t{0}, std::uint64_t{5}, kModelBytesMax + 4}) {
    EXPECT_FALSE(check_pass(pass(1, 2, VectorRef{{}, bytes})).ok()) << bytes;
    EXPECT_FALSE(check_pass(pass(0, 2, {}, VectorRef{{}, bytes})).ok()) << bytes;
  }
}

}  // namespace
}  // namespace fluvial::round
