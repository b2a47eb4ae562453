#include "core/net/block_pool.h"

#include <gtest/gtest.h>

#include <set>
#include <utility>
#include <vector>

namespace fluvial::net {
namespace {

std::vector<Buffer> borrow(BlockPool& pool, std::size_t count) {
  std::vector<Buffer> blocks;
  while (blocks.size() < count) blocks.push_back(pool.acquire());
  return blocks;
}

TEST(BlockPool, ManyWhoWaitHoldLittle) {
  BlockPool pool;
  const std::vector<Buffer> of_sessions = borrow(pool, 200);
  std::size_t bytes = 0;
  for (const Buffer& block : of_sessions) bytes += block.size();
  EXPECT_EQ(of_sessions.front().size(), kLargeBlockBytes) << "few system calls, while there are few sessions";
  EXPECT_LE(bytes, 200u * 64 * 1024) << "of many a quarter of that";
}

TEST(BlockPool, ALargeOneThatComesBackIsTheNext) {
  BlockPool pool;
  std::vector<Buffer> blocks = borrow(pool, BlockPool::kLargeMost + 1);
  EXPECT_EQ(blocks.back().size(), kSmallBlockBytes);
  const std::byte* const memory = blocks.front().data();
  pool.release(std::move(blocks.front()));
  Buffer again = pool.acquire();
  EXPECT_EQ(again.data(), memory);
  EXPECT_EQ(pool.acquire().size(), kSmallBlockBytes) << "there are no more large ones than before";
}

TEST(BlockPool, BlocksAreUsedAgain) {
  BlockPool pool;
  std::set<const std::byte*> before;
  for (int turn = 0; turn < 3; ++turn) {
    std::vector<Buffer> blocks = borrow(pool, BlockPool::kLargeMost + BlockPool::kSmallKept);
    std::set<const std::byte*> memory;
    for (const Buffer& block : blocks) memory.insert(block.data());
    EXPECT_EQ(memory.size(), blocks.size());
    if (turn > 0) {
      EXPECT_EQ(memory, before);
    }
    before = std::move(memory);
    for (Buffer& block : blocks) pool.release(std::move(block));
  }
}

}  // namespace
}  // namespace fluvial::net
