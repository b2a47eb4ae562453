#include "core/base/buffer_pool.h"

#include <gtest/gtest.h>

#include <cstring>
#include <new>
#include <thread>
#include <vector>

#include "core/base/bytes.h"
#include "core/base/rng.h"

namespace fluvial {
namespace {

constexpr std::size_t kMiB = 1024 * 1024;

// Blocks of one pool, given back at the end.
class Taken {
 public:
  explicit Taken(BufferPool& pool) : pool_(pool) {}
  ~Taken() {
    while (!blocks_.empty()) give_back(blocks_.size() - 1);
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
  std::size_t size() const { return blocks_.size(); }

 private:
  BufferPool& pool_;
  std::vector<std::pair<std::byte*, std::size_t>> blocks_;
};

TEST(BufferPool, ABlockIsUsedAgainByTheNextOfItsClass) {
  BufferPool pool;
  Taken taken(pool);
  std::byte* const first = taken.take(4 * kMiB);
  std::memset(first, 1, 4 * kMiB);
  taken.give_back(0);
  EXPECT_EQ(pool.counts().kept_bytes, 4 * kMiB);
  EXPECT_EQ(taken.take(4 * kMiB - 5), first) << "of the same class";
  EXPECT_NE(taken.take(4 * kMiB), first) << "while it is in use";
  taken.take(3 * kMiB);
  const BufferPool::Counts counts = pool.counts();
  EXPECT_EQ(counts.taken, 4u);
  EXPECT_EQ(counts.reused, 1u);
  EXPECT_EQ(counts.kept_bytes, 0u);
  EXPECT_EQ(counts.used_bytes, 11 * kMiB);
  EXPECT_EQ(counts.peak_bytes, 11 * kMiB);
}

TEST(BufferPool, ABlockIsAtMostAnEighthLargerAndPowersOfTwoAreExact) {
  EXPECT_EQ(BufferPool::class_of(1), BufferPool::kLeastBytes);
  for (std::size_t power = BufferPool::kLeastBytes; power <= std::size_t{1} << 36; power *= 2) {
    EXPECT_EQ(BufferPool::class_of(power), power);
    EXPECT_EQ(BufferPool::class_of(power - 1), power);
    for (std::size_t bytes = power + 1; bytes < 2 * power; bytes += power / 29) {
      const std::size_t block = BufferPool::class_of(bytes);
      EXPECT_GE(block, bytes);
      EXPECT_LE(block - bytes, power / 8);
      EXPECT_EQ(BufferPool::class_of(block), block) << "a block is of its own class";
      EXPECT_EQ(block % 64, 0u);
    }
  }
}

// Whatever is taken and given back in whatever order.
TEST(BufferPool, NeverHoldsMoreThanThePeakOfUseAndItsSlack) {
  BufferPool pool;
  Taken taken(pool);
  Rng rng(7);
  for (int step = 0; step < 20'000; ++step) {
    if (taken.size() > 0 && (taken.size() > 30 || rng.below(2) == 0)) {
      taken.give_back(rng.below(taken.size()));
    } else {
      taken.take(BufferPool::kLeastBytes + rng.below(3 * kMiB));
    }
    const BufferPool::Counts counts = pool.counts();
    ASSERT_LE(counts.used_bytes, counts.peak_bytes);
    ASSERT_LE(counts.used_bytes + counts.kept_bytes, counts.peak_bytes + BufferPool::kSlackBytes);
  }
  EXPECT_GT(pool.counts().reused, 0u);
}

TEST(BufferPool, ForANewBlockTheSmallestThatSufficesGoes) {
  BufferPool pool;
  Taken taken(pool);
  for (const std::size_t mib : {64, 8, 2}) taken.take(mib * kMiB);
  for (int i = 0; i < 3; ++i) taken.give_back(0);
  taken.take(16 * kMiB);  // within the slack
  EXPECT_EQ(pool.counts().kept_bytes, 74 * kMiB);
  taken.take(7 * kMiB);
  EXPECT_EQ(pool.counts().kept_bytes, 66 * kMiB) << "8 MiB went: 2 were too few, 64 too many";
}

TEST(BufferPool, TrimmingGivesBackWhatIsKeptAndForgetsThePeak) {
  BufferPool pool;
  Taken taken(pool);
  taken.take(kMiB);
  taken.take(8 * kMiB);
  taken.give_back(1);
  pool.trim();
  EXPECT_EQ(pool.counts().kept_bytes, 0u);
  EXPECT_EQ(pool.counts().used_bytes, kMiB);
  EXPECT_EQ(pool.counts().peak_bytes, kMiB);
  taken.take(8 * kMiB);
  EXPECT_EQ(pool.counts().reused, 0u);
}

std::size_t pages_left = 0;
std::vector<std::size_t> pages_taken;

TEST(BufferPool, LargeBlocksComeFromThePagesThatTheProcessNamesAndGoBackThere) {
  pages_left = SIZE_MAX;
  pages_taken.clear();
  const BufferPool::Pages pages{
      [](std::size_t bytes) {
        pages_taken.push_back(bytes);
        return bytes > pages_left ? nullptr : static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
      },
      [](std::byte* block, std::size_t) {
        pages_taken.push_back(0);
        ::operator delete(block, std::align_val_t{64});
      }};
  BufferPool pool;
  pool.take_from(pages);
  Taken taken(pool);
  taken.take(BufferPool::kPagesBytes - 64 * 1024);
  EXPECT_TRUE(pages_taken.empty()) << "a small block is the heap's";
  taken.take(2 * kMiB);
  taken.give_back(1);
  pool.trim();
  EXPECT_EQ(pages_taken, (std::vector<std::size_t>{2 * kMiB, 0}));
}

TEST(BufferPool, WithoutMemoryWhatIsKeptGoesFirstAndThenItIsAnError) {
  BufferPool pool;
  pages_left = 4 * kMiB;
  pages_taken.clear();
  pool.take_from({[](std::size_t bytes) {
                    if (bytes > pages_left) return static_cast<std::byte*>(nullptr);
                    pages_left -= bytes;
                    return static_cast<std::byte*>(::operator new(bytes, std::align_val_t{64}));
                  },
                  [](std::byte* block, std::size_t bytes) {
                    pages_left += bytes;
                    ::operator delete(block, std::align_val_t{64});
                  }});
  Taken taken(pool);
  taken.take(3 * kMiB);
  taken.give_back(0);
  taken.take(2 * kMiB);  // for which the kept 3 had to go
  EXPECT_EQ(pool.counts().kept_bytes, 0u);
  EXPECT_THROW(taken.take(3 * kMiB), std::bad_alloc);
  EXPECT_EQ(pool.counts().used_bytes, 2 * kMiB);
}

TEST(BufferPool, ManyThreadsNeverShareABlock) {
  BufferPool pool;
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

TEST(Buffers, LargeOnesUseMemoryAgainSmallOnesAreTheHeaps) {
  if (!BufferPool::kServesBuffers) GTEST_SKIP() << "this build watches each Buffer";
  const BufferPool::Counts before = BufferPool::shared().counts();
  std::byte* place = nullptr;
  for (int round = 0; round < 3; ++round) {
    Buffer large(11 * kMiB + 17);
    if (place == nullptr) place = large.data();
    EXPECT_EQ(large.data(), place);
    large.shrink(5);  // it is still the block that it was
    const Buffer moved = std::move(large);
    EXPECT_EQ(BufferPool::shared().counts().used_bytes, before.used_bytes + BufferPool::class_of(11 * kMiB + 17));
  }
  const Buffer small(BufferPool::kLeastBytes - 1);
  const BufferPool::Counts after = BufferPool::shared().counts();
  EXPECT_EQ(after.taken, before.taken + 3);
  EXPECT_GE(after.reused, before.reused + 2);
  EXPECT_EQ(after.used_bytes, before.used_bytes);
}

}  // namespace
}  // namespace fluvial
