#include "core/base/buffer_pool.h"

#include <gtest/gtest.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstring>
#include <map>
#include <mutex>
#include <new>
#include <thread>
#include <utility>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/rng.h"

namespace fluvial {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

// The system's pages, counted: each take lies after the one before.
constexpr std::size_t kReservedBytes = std::size_t{1} << 30;  // three times of what these tests take
std::byte* next_page = [] {
  void* const memory = ::mmap(nullptr, kReservedBytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}();
std::size_t reserved_left = kReservedBytes;
std::size_t pages_left = SIZE_MAX;
std::size_t pages_held = 0;
std::mutex pages_mutex;
std::byte* take_pages(std::size_t bytes) {
  const std::lock_guard lock(pages_mutex);
  if (bytes > pages_left) return nullptr;
  void* const memory = ::mmap(next_page, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_FIXED, -1, 0);
  if (memory == MAP_FAILED) return nullptr;
  next_page += bytes;
  reserved_left -= bytes;
  pages_left -= bytes;
  pages_held += bytes;
  return static_cast<std::byte*>(memory);
}
void give_pages_back(std::byte* stretch, std::size_t bytes) {
  const std::lock_guard lock(pages_mutex);
  EXPECT_EQ(::munmap(stretch, bytes), 0);
  pages_left += bytes;
  pages_held -= bytes;
}

class BufferPoolTest : public testing::Test {
 protected:
  BufferPoolTest() {
    EXPECT_NE(next_page, nullptr);
    pages_left = SIZE_MAX / 2, pages_held = 0;
  }
  ~BufferPoolTest() override {
    while (!blocks_.empty()) give_back(0);
    pool_.trim();
    EXPECT_EQ(pages_held, 0u);
    pages_left = SIZE_MAX / 2;
  }
  std::byte* take(std::size_t bytes) {
    blocks_.emplace_back(pool_.take(bytes), bytes);
    return blocks_.back().first;
  }
  void give_back(std::size_t index) {
    const auto [block, bytes] = blocks_[index];
    blocks_.erase(blocks_.begin() + static_cast<std::ptrdiff_t>(index));
    pool_.give_back(block, bytes);
  }
  void give_all_back() {
    while (!blocks_.empty()) give_back(blocks_.size() / 2);
  }

  BufferPool pool_{{take_pages, give_pages_back}};
  std::vector<std::pair<std::byte*, std::size_t>> blocks_;
};

TEST_F(BufferPoolTest, ABlockIsUsedAgain) {
  std::byte* const first = take(4 * kMiB);
  give_back(0);
  EXPECT_EQ(pool_.counts().kept_bytes, 4 * kMiB);
  EXPECT_EQ(take(4 * kMiB - 5), first) << "it is as long in whole grains";
  EXPECT_NE(take(4 * kMiB), first) << "while it is in use";
  take(3 * kMiB);
  const BufferPool::Counts counts = pool_.counts();
  EXPECT_EQ(counts.taken, 4u);
  EXPECT_EQ(counts.reused, 1u);
  EXPECT_EQ(counts.kept_bytes, 0u);
  EXPECT_EQ(counts.used_bytes, 11 * kMiB);
  EXPECT_EQ(counts.peak_bytes, 11 * kMiB);
}

// The phases of a round: chunks, then a model in their place, and the model before goes.
TEST_F(BufferPoolTest, TheChunksOfOnePhaseAreTheModelOfTheNext) {
  std::byte* model = pool_.take(40 * kMiB);
  std::size_t after_two_rounds = 0;
  for (int round = 0; round < 10; ++round) {
    for (int chunk = 0; chunk < 45; ++chunk) take(kMiB);
    give_all_back();
    std::byte* const next = pool_.take(40 * kMiB);
    pool_.give_back(model, 40 * kMiB);
    model = next;
    if (round == 1) after_two_rounds = pages_held;
    if (round > 1) EXPECT_EQ(pages_held, after_two_rounds) << "round " << round;
  }
  EXPECT_EQ(pool_.counts().taken - pool_.counts().reused, 46u) << "a model, and the chunks of one round";
  pool_.give_back(model, 40 * kMiB);
}

TEST_F(BufferPoolTest, ABlockIsCutFromTheShortestStretchThatSuffices) {
  take(17 * kMiB);
  give_back(0);  // of which the next lie in a row
  for (const std::size_t mib : {8, 1, 2, 1, 4, 1}) take(mib * kMiB);
  std::byte* const two = blocks_[2].first;
  for (const std::size_t index : {4, 2, 0}) give_back(index);  // what lies between stays in use
  EXPECT_EQ(take(kMiB + 1), two);
}

TEST_F(BufferPoolTest, ABlockIsAtMostAGrainLonger) {
  for (std::size_t bytes = 1; bytes < std::size_t{1} << 36; bytes += bytes / 3 + 1) {
    EXPECT_GE(BufferPool::block_bytes(bytes), bytes);
    EXPECT_LT(BufferPool::block_bytes(bytes) - bytes, BufferPool::kGrainBytes);
    EXPECT_EQ(BufferPool::block_bytes(bytes) % BufferPool::kGrainBytes, 0u);
  }
}

// Whatever is taken and given back in whatever order: blocks share no byte, what is in them stays, and the system has
// given exactly what is used and kept.
TEST_F(BufferPoolTest, HoldsNoMoreThanThePeakOfUseAndItsSlack) {
  std::map<std::byte*, std::uint64_t> marks;
  Rng rng(7);
  for (std::uint64_t step = 0; step < 20'000; ++step) {
    if (!blocks_.empty() && (blocks_.size() > 30 || rng.below(2) == 0)) {
      const std::size_t index = rng.below(blocks_.size());
      const auto [block, bytes] = blocks_[index];
      for (const std::size_t at : {std::size_t{0}, bytes - 8})
        ASSERT_EQ(load_le<std::uint64_t>(block + at), marks[block]);
      give_back(index);
    } else {
      const std::size_t bytes = BufferPool::kLeastBytes + rng.below(3 * kMiB);
      std::byte* const block = take(bytes);
      marks[block] = step;
      for (const std::size_t at : {std::size_t{0}, bytes - 8}) store_le(block + at, step);
    }
    const BufferPool::Counts counts = pool_.counts();
    ASSERT_EQ(counts.used_bytes + counts.kept_bytes, pages_held);
    ASSERT_LE(counts.used_bytes, counts.peak_bytes);
    ASSERT_LE(counts.used_bytes + counts.kept_bytes, counts.peak_bytes + BufferPool::kSlackBytes);
  }
  EXPECT_GT(pool_.counts().reused, pool_.counts().taken / 2);
}

TEST_F(BufferPoolTest, ForANewBlockNoMoreGoesThanMust) {
  take(64 * kMiB);
  take(8 * kMiB);
  give_back(0);
  take(80 * kMiB);  // 64 are too short for it; the peak is 88 by now, and the slack beyond it
  EXPECT_EQ(pool_.counts().kept_bytes, BufferPool::kSlackBytes);
  EXPECT_EQ(pages_held, 88 * kMiB + BufferPool::kSlackBytes);
}

TEST_F(BufferPoolTest, TrimmingGivesBackWhatIsKeptAndForgetsThePeak) {
  take(kMiB);
  take(8 * kMiB);
  give_back(1);
  pool_.trim();
  EXPECT_EQ(pages_held, kMiB);
  EXPECT_EQ(pool_.counts().kept_bytes, 0u);
  EXPECT_EQ(pool_.counts().used_bytes, kMiB);
  EXPECT_EQ(pool_.counts().peak_bytes, kMiB);
  take(8 * kMiB);
  EXPECT_EQ(pool_.counts().reused, 0u);
}

TEST_F(BufferPoolTest, WithoutMemoryWhatIsKeptGoesFirstAndThenItIsAnError) {
  pages_left = 4 * kMiB;
  take(2 * kMiB);
  give_back(0);
  take(3 * kMiB);  // for which the kept 2 had to go
  EXPECT_EQ(pool_.counts().kept_bytes, 0u);
  EXPECT_THROW(take(2 * kMiB), std::bad_alloc);
  EXPECT_EQ(pool_.counts().used_bytes, 3 * kMiB);
}

TEST(BufferPool, WithoutPagesNothingIsKept) {
  BufferPool pool;
  std::byte* const block = pool.take(kMiB);
  std::memset(block, 1, kMiB);
  pool.give_back(block, kMiB);
  EXPECT_EQ(pool.counts().kept_bytes, 0u);
  EXPECT_EQ(pool.counts().used_bytes, 0u);
}

TEST_F(BufferPoolTest, ManyThreadsNeverShareABlock) {
  BufferPool& pool = pool_;
  std::vector<std::thread> threads;
  for (unsigned char mark = 1; mark <= 4; ++mark) {
    threads.emplace_back([&pool, mark] {
      for (int i = 0; i < 200; ++i) {
        constexpr std::size_t kBytes = BufferPool::kLeastBytes;
        std::byte* const block = pool.take(kBytes);
        std::memset(block, mark, kBytes);
        std::this_thread::yield();
        for (std::size_t at = 0; at < kBytes; at += 4096) ASSERT_EQ(block[at], std::byte{mark});
        pool.give_back(block, kBytes);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(pool.counts().taken, 800u);
  EXPECT_EQ(pool.counts().used_bytes, 0u);
  EXPECT_LE(pool.counts().kept_bytes, 4 * BufferPool::kLeastBytes);
}

// Before any Buffer of this executable; for all of its tests.
std::byte* map_pages(std::size_t bytes) {
  void* const memory = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  return memory == MAP_FAILED ? nullptr : static_cast<std::byte*>(memory);
}
void unmap_pages(std::byte* stretch, std::size_t bytes) { ::munmap(stretch, bytes); }
const bool named = (BufferPool::shared().take_from({map_pages, unmap_pages}), true);

TEST(Buffers, LargeOnesUseMemoryAgainSmallOnesAreTheHeaps) {
  ASSERT_TRUE(named);
  if (!BufferPool::kServesBuffers) GTEST_SKIP() << "this build watches each Buffer";
  const BufferPool::Counts before = BufferPool::shared().counts();
  std::byte* place = nullptr;
  for (int round = 0; round < 3; ++round) {
    Buffer large(11 * kMiB + 17);
    if (place == nullptr) place = large.data();
    EXPECT_EQ(large.data(), place);
    large.shrink(5);  // it is still the block that it was
    const Buffer moved = std::move(large);
    EXPECT_EQ(BufferPool::shared().counts().used_bytes, before.used_bytes + BufferPool::block_bytes(11 * kMiB + 17));
  }
  const Buffer small(BufferPool::kLeastBytes - 1);
  const BufferPool::Counts after = BufferPool::shared().counts();
  EXPECT_EQ(after.taken, before.taken + 3);
  EXPECT_GE(after.reused, before.reused + 2);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
}

}  // namespace
}  // namespace fluvial
