#include "core/store/staging.h"

#include <gtest/gtest.h>

#include <thread>

#include "core/base/testing.h"
#include "core/store/memory_file_system.h"

namespace fluvial::store {
namespace {

Buffer staged_chunk(std::size_t size, int fill) {
  Buffer buffer(size);
  std::fill(buffer.span().begin(), buffer.span().end(), static_cast<std::byte>(fill));
  return buffer;
}

TEST(Staging, SpillsBeyondTheBudgetAndGivesItBack) {
  const TemporaryFolder folder;
  PosixFileSystem files;
  StagingBudget budget(250);
  {
    StagedUpdate first(budget, files, folder.path(), 10'000);
    for (int i = 0; i < 5; ++i) ASSERT_TRUE(first.append(staged_chunk(100, i)).ok());
    EXPECT_EQ(first.total_bytes(), 500u);
    EXPECT_EQ(first.spilled_bytes(), 300u);
    EXPECT_EQ(budget.bytes_used(), 200u);
    ASSERT_TRUE(first.append(staged_chunk(50, 5)).ok());  // memory again: it fits
    EXPECT_EQ(budget.bytes_used(), 250u);
    EXPECT_EQ(budget.bytes_spilled(), 300u);

    StagedUpdate moved = std::move(first);
    EXPECT_EQ(first.chunk_count(), 0u);  // NOLINT(bugprone-use-after-move): it is empty, as promised
    int expected = 0;
    ASSERT_TRUE(moved
                    .for_each([&](std::uint64_t index, ByteSpan bytes) -> Status {
                      EXPECT_EQ(index, static_cast<std::uint64_t>(expected));
                      EXPECT_EQ(bytes.size(), expected == 5 ? 50u : 100u);
                      for (const std::byte byte : bytes) EXPECT_EQ(static_cast<int>(byte), expected);
                      ++expected;
                      return {};
                    })
                    .ok());
    EXPECT_EQ(expected, 6);
  }
  EXPECT_EQ(budget.bytes_spilled(), 0u);
  EXPECT_EQ(budget.bytes_used(), 0u);
  EXPECT_TRUE(files.list(folder.path())->empty());
}

TEST(Staging, ABudgetByTheModelIsWhatItsSumTakes) {
  EXPECT_EQ(staging_bytes_for(0), std::uint64_t{32} << 20);
  EXPECT_EQ(staging_bytes_for(4 << 20), std::uint64_t{32} << 20);
  EXPECT_EQ(staging_bytes_for((4 << 20) + 1), (std::uint64_t{32} << 20) + 8);
  EXPECT_EQ(staging_bytes_for(1'200'000'000), 9'600'000'000U) << "beyond 32 bits";
  EXPECT_GE(staging_bytes_for(~std::uint64_t{0}), std::uint64_t{1} << 63) << "more than there is, and no less";
}

TEST(Staging, AnotherBudgetHoldsForWhatComesNext) {
  const TemporaryFolder folder;
  PosixFileSystem files;
  StagingBudget budget(250);
  StagedUpdate update(budget, files, folder.path(), 10'000);
  for (int i = 0; i < 2; ++i) ASSERT_TRUE(update.append(staged_chunk(100, i)).ok());
  budget.set_bytes_max(100);
  EXPECT_EQ(budget.bytes_max(), 100U);
  EXPECT_EQ(budget.bytes_used(), 200U) << "what is staged stays";
  ASSERT_TRUE(update.append(staged_chunk(10, 2)).ok());
  EXPECT_EQ(update.spilled_bytes(), 10U);
  budget.set_bytes_max(300);
  ASSERT_TRUE(update.append(staged_chunk(100, 3)).ok());
  EXPECT_EQ(update.spilled_bytes(), 10U);
  update.clear();
  EXPECT_EQ(budget.bytes_used(), 0U);
}

TEST(Staging, RefusesMoreThanAnnouncedAndAFullDisk) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/s").ok());
  StagingBudget budget(0);
  StagedUpdate update(budget, files, "/s", 100);
  ASSERT_TRUE(update.append(staged_chunk(60, 1)).ok());
  EXPECT_EQ(update.append(staged_chunk(60, 2)).error().code, Code::kResourceExhausted);
  files.fail_at(0, Fault::kShortWrite);
  EXPECT_EQ(update.append(staged_chunk(30, 3)).error().code, Code::kResourceExhausted);
  EXPECT_EQ(update.chunk_count(), 1u);
  ASSERT_TRUE(update.append(staged_chunk(30, 4)).ok());  // the disk has room again: the failed append left nothing
  Buffer scratch;
  EXPECT_EQ(static_cast<int>(update.read(1, scratch)->front()), 4);
  EXPECT_EQ(static_cast<int>(update.read(0, scratch)->front()), 1);
}

// A disk that fails, is read-only or is missing must never be taken for a bad update.
TEST(Staging, WhateverIsWrongWithTheDiskIsNamedAndNoFaultOfTheUpdate) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/s").ok());
  StagingBudget budget(0);
  StagedUpdate nowhere(budget, files, "/unmounted", 100);
  const Error gone = nowhere.append(staged_chunk(10, 1)).error();
  EXPECT_EQ(gone.code, Code::kUnavailable);
  EXPECT_NE(gone.message.find("/unmounted"), std::string::npos) << gone.message;

  StagedUpdate update(budget, files, "/s", 100);
  ASSERT_TRUE(update.append(staged_chunk(10, 1)).ok());
  files.fail_at(0, Fault::kIo);
  EXPECT_EQ(update.append(staged_chunk(10, 2)).error().code, Code::kUnavailable);
  EXPECT_EQ(update.chunk_count(), 1u);
  Buffer scratch;
  files.fail_at(0, Fault::kIo);
  const Error unread = update.read(0, scratch).error();
  EXPECT_EQ(unread.code, Code::kUnavailable);
  EXPECT_NE(unread.message.find("/s"), std::string::npos) << unread.message;
  EXPECT_EQ(static_cast<int>(update.read(0, scratch)->front()), 1);
}

TEST(Staging, TheBudgetHoldsAmongThreads) {
  StagingBudget budget(1000);
  const auto work = [&] {
    for (int i = 0; i < 20'000; ++i) {
      if (budget.try_take(300)) {
        EXPECT_LE(budget.bytes_used(), 1000u);
        budget.give_back(300);
      }
    }
  };
  std::thread other(work);
  work();
  other.join();
  EXPECT_EQ(budget.bytes_used(), 0u);
}

}  // namespace
}  // namespace fluvial::store
