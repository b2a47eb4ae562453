#include "core/store/spill_files.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <optional>

#include "core/base/testing.h"
#include "core/store/memory_file_system.h"
#include "core/store/staging.h"

namespace fluvial::store {
namespace {

Buffer chunk(std::size_t size, int fill) {
  Buffer buffer(size);
  std::fill(buffer.span().begin(), buffer.span().end(), static_cast<std::byte>(fill));
  return buffer;
}

class SpillFilesTest : public testing::Test {
 protected:
  SpillFilesTest() { EXPECT_TRUE(files_.make_folder("/s").ok()); }
  StagedUpdate update() { return {budget_, files_, "/s", 1000}; }
  void expect(const StagedUpdate& update, std::uint64_t index, std::size_t size, int fill) {
    Buffer scratch;
    const Result<ByteSpan> read = update.read(index, scratch);
    ASSERT_TRUE(read.ok());
    EXPECT_EQ(read->size(), size);
    EXPECT_TRUE(std::ranges::all_of(*read, [&](std::byte byte) { return byte == static_cast<std::byte>(fill); }));
  }
  SpillFiles::Counts counts() { return budget_.files().counts(); }

  MemoryFileSystem files_;
  StagingBudget budget_{0};
};

TEST_F(SpillFilesTest, AnUpdateOverwritesTheFileOfTheOneBefore) {
  for (int round = 1; round <= 3; ++round) {
    StagedUpdate update = this->update();
    for (int i = 0; i < 3; ++i) ASSERT_TRUE(update.append(chunk(200 / round, 10 * round + i)).ok());
    for (int i = 0; i < 3; ++i) expect(update, i, 200 / round, 10 * round + i);
  }
  EXPECT_EQ(counts().opened, 1u);
  EXPECT_EQ(counts().reused, 2u);
  EXPECT_EQ(counts().kept, 1u);
  EXPECT_EQ(budget_.bytes_spilled(), 0u);
}

TEST_F(SpillFilesTest, UpdatesOfOneRoundHaveAFileEach) {
  for (int round = 0; round < 2; ++round) {
    StagedUpdate one = update();
    StagedUpdate other = update();
    for (int i = 0; i < 4; ++i) {
      ASSERT_TRUE(one.append(chunk(50, i)).ok());
      ASSERT_TRUE(other.append(chunk(50, 100 + i)).ok());
    }
    const StagedUpdate moved = std::move(one);
    for (int i = 0; i < 4; ++i) expect(moved, i, 50, i);
    for (int i = 0; i < 4; ++i) expect(other, i, 50, 100 + i);
  }
  EXPECT_EQ(counts().opened, 2u);
  EXPECT_EQ(counts().reused, 2u);
}

TEST_F(SpillFilesTest, AFileThatNobodyNeedsIsGivenUp) {
  const auto spill = [&] { ASSERT_TRUE(update().append(chunk(10, 1)).ok()); };
  spill();
  budget_.files().close_idle();
  EXPECT_EQ(counts().kept, 1u) << "it was used since the look before";
  spill();
  budget_.files().close_idle();
  EXPECT_EQ(counts().kept, 1u) << "likewise";
  budget_.files().close_idle();
  EXPECT_EQ(counts().kept, 0u);
  EXPECT_EQ(counts().opened, 1u);
}

TEST_F(SpillFilesTest, AFileThatFailedServesNobodyElse) {
  for (const bool reading : {false, true}) {
    StagedUpdate update = this->update();
    ASSERT_TRUE(update.append(chunk(10, 1)).ok());
    files_.fail_at(0, Fault::kIo);
    Buffer scratch;
    EXPECT_EQ(reading ? update.read(0, scratch).error().code : update.append(chunk(10, 2)).error().code,
              Code::kUnavailable);
  }
  EXPECT_EQ(counts().opened, 2u);
  EXPECT_EQ(counts().kept, 0u);
}

TEST_F(SpillFilesTest, OnAFullDiskWhatIsKeptGoesFirst) {
  {
    StagedUpdate one = update();
    StagedUpdate other = update();
    ASSERT_TRUE(one.append(chunk(10, 1)).ok() && other.append(chunk(10, 1)).ok());
  }
  EXPECT_EQ(counts().kept, 2u);
  StagedUpdate update = this->update();
  files_.fail_at(0, Fault::kShortWrite);
  ASSERT_TRUE(update.append(chunk(20, 7)).ok());
  expect(update, 0, 20, 7);
  EXPECT_EQ(counts().kept, 0u);
  files_.fail_at(0, Fault::kShortWrite);
  EXPECT_EQ(update.append(chunk(20, 8)).error().code, Code::kResourceExhausted) << "nothing is left to give";
}

TEST_F(SpillFilesTest, EachFolderHasItsOwn) {
  ASSERT_TRUE(files_.make_folder("/t").ok());
  ASSERT_TRUE(update().append(chunk(10, 1)).ok());
  StagedUpdate elsewhere(budget_, files_, "/t", 1000);
  ASSERT_TRUE(elsewhere.append(chunk(10, 1)).ok());
  EXPECT_EQ(counts().opened, 2u);
  EXPECT_EQ(counts().reused, 0u);
}

}  // namespace
}  // namespace fluvial::store
