#include "core/tree/heap.h"

#include <gtest/gtest.h>

#include <cstring>

namespace fluvial::tree {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

class IdleMemoryTest : public testing::Test {
 protected:
  void round() { pool_.give_back(pool_.take(4 * kMiB), 4 * kMiB); }

  BufferPool pool_{mapped_pages()};
  int trimmed_ = 0;
  IdleMemory memory_{pool_, [this] { ++trimmed_; }};
};

TEST_F(IdleMemoryTest, WhatIsKeptGoesOnceNoRoundComes) {
  round();
  EXPECT_FALSE(memory_.look()) << "a round came";
  EXPECT_EQ(pool_.counts().kept_bytes, 4 * kMiB);
  EXPECT_TRUE(memory_.look());
  EXPECT_EQ(pool_.counts().kept_bytes, 0u);
  EXPECT_EQ(trimmed_, 1);
  EXPECT_FALSE(memory_.look()) << "once";
  EXPECT_EQ(trimmed_, 1);
}

TEST_F(IdleMemoryTest, WhileRoundsComeMemoryStays) {
  for (int i = 0; i < 10; ++i) {
    round();
    EXPECT_FALSE(memory_.look());
  }
  EXPECT_EQ(pool_.counts().reused, 9u);
  EXPECT_EQ(trimmed_, 0);
}

TEST_F(IdleMemoryTest, AfterAnotherRoundItGoesAgain) {
  round();
  (void)memory_.look();
  EXPECT_TRUE(memory_.look());
  round();
  EXPECT_FALSE(memory_.look());
  EXPECT_TRUE(memory_.look());
  EXPECT_EQ(trimmed_, 2);
}

TEST(MappedPages, LongBlocksBeginAtAHugePageAndAllOfABlockIsThere) {
  BufferPool pool(mapped_pages());
  for (const std::size_t bytes : {kMiB, 5 * kMiB + 1, 8 * kMiB, 8 * kMiB + 1, 64 * kMiB}) {
    const std::size_t block_bytes = BufferPool::block_bytes(bytes);
    std::byte* const block = pool.take(bytes);
    std::memset(block, 1, block_bytes);
    if (bytes > 8 * kMiB) EXPECT_EQ(reinterpret_cast<std::uintptr_t>(block) % (2 * kMiB), 0u) << bytes;  // NOLINT
    EXPECT_EQ(block[block_bytes - 1], std::byte{1});
    pool.give_back(block, bytes);
    pool.trim();
  }
}

}  // namespace
}  // namespace fluvial::tree
