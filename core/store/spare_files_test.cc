// Files that no record names any more are written again; and nobody who reads one, and nothing that crashes, sees it.
#include "core/store/spare_files.h"

#include "core/store/site_store_test_support.h"

namespace fluvial::store {
namespace {

class SpareFilesTest : public testing::Test {
 protected:
  SpareFilesTest() {
    EXPECT_TRUE(files_.make_folder("/t").ok());
    EXPECT_TRUE(spares_.open_folder().ok());
  }
  // A file that a record names, of this many bytes.
  std::shared_ptr<File> write(const std::string& name, std::size_t bytes, char fill,
                              SpareFiles::Size size = SpareFiles::Size::kLarge) {
    const SpareFiles::Slot slot = spares_.open(name, size).value();
    EXPECT_TRUE(slot.file->write_at(0, as_byte_span(std::string(bytes, fill))).ok());
    EXPECT_TRUE(SpareFiles::cut(slot, bytes).ok());
    spares_.wrote(name, slot, bytes);
    return slot.file;
  }
  std::uint64_t length(const std::string& path) {
    const auto file = files_.open(path, OpenMode::kRead);
    return file.ok() ? (*file)->size().value() : 0;
  }
  std::vector<std::string> in(const std::string& folder) { return files_.list(folder).value(); }

  MemoryFileSystem files_;
  SpareFiles spares_{files_, "/t", "/spare"};
};

TEST_F(SpareFilesTest, AFileIsWrittenAgainUnderANewName) {
  write("t-1", 100, 'a').reset();
  spares_.retire("t-1");
  EXPECT_TRUE(in("/t").empty());
  EXPECT_EQ(in("/spare").size(), 1u);
  const auto file = write("t-2", 80, 'b');
  EXPECT_EQ(spares_.reused(), 1u);
  EXPECT_EQ(in("/t"), std::vector<std::string>{"t-2"});
  EXPECT_TRUE(in("/spare").empty());
  Buffer read(80);
  ASSERT_TRUE(read_exactly(*file, 0, read.span(), "t-2").ok());
  EXPECT_EQ(as_text(read.span()), std::string(80, 'b'));
}

TEST_F(SpareFilesTest, WhoReadsAFileReadsItToTheEnd) {
  const auto reader = write("t-1", 100, 'a');
  spares_.retire("t-1");
  auto later = write("t-2", 100, 'b');
  EXPECT_EQ(spares_.reused(), 0u);
  Buffer read(100);
  ASSERT_TRUE(read_exactly(*reader, 0, read.span(), "t-1").ok());
  EXPECT_EQ(as_text(read.span()), std::string(100, 'a'));

  const std::shared_ptr<File> second = files_.open("/t/t-2", OpenMode::kRead).value();
  spares_.reads("t-2", second);
  later.reset();
  spares_.retire("t-2");
  write("t-3", 100, 'c');
  EXPECT_EQ(spares_.reused(), 0u) << "one reader has gone, another has not";
}

// Whichever of them was written first.
TEST_F(SpareFilesTest, TheLargeFileForTheVectorTheSmallOneForItsChunks) {
  int names = 0;
  const auto name = [&] { return "t-" + std::to_string(++names); };
  for (const auto& [first, second] : {std::pair(1000, 100), std::pair(100, 1000)}) {
    for (const SpareFiles::Size size : {SpareFiles::Size::kSmall, SpareFiles::Size::kLarge}) {
      const std::string old[] = {name(), name()};
      write(old[0], static_cast<std::size_t>(first), 'a');
      write(old[1], static_cast<std::size_t>(second), 'a');
      for (const std::string& one : old) spares_.retire(one);
      const bool large = size == SpareFiles::Size::kLarge;
      EXPECT_EQ(spares_.open(name(), size)->old_bytes, large ? 1000u : 100u) << first << " first";
      EXPECT_EQ(spares_.open(name(), size)->old_bytes, large ? 100u : 1000u) << "the one that is left";
      EXPECT_EQ(spares_.open(name(), size)->old_bytes, 0u) << "none is left: a new one";
    }
  }
}

TEST_F(SpareFilesTest, AFileKeepsAtMostAsMuchAgain) {
  write("t-1", 1000, 'a');
  spares_.retire("t-1");
  write("t-2", 500, 'b');
  EXPECT_EQ(length("/t/t-2"), 1000u);
  spares_.retire("t-2");
  write("t-3", 499, 'c');
  EXPECT_EQ(length("/t/t-3"), 499u);
  spares_.retire("t-3");
  EXPECT_EQ(spares_.open("t-4", SpareFiles::Size::kLarge)->old_bytes, 499u);
}

TEST_F(SpareFilesTest, NoMoreAreKeptThanARoundNeeds) {
  for (int i = 0; i < 6; ++i) write("t-" + std::to_string(i), 10, 'a');
  for (int i = 0; i < 6; ++i) spares_.retire("t-" + std::to_string(i));
  EXPECT_TRUE(in("/t").empty());
  EXPECT_EQ(in("/spare").size(), SpareFiles::kSparesMax);
}

TEST_F(SpareFilesTest, WhenAFileCouldNotBeWrittenAllAreGivenUp) {
  write("t-1", 10, 'a');
  spares_.retire("t-1");
  spares_.failed();
  EXPECT_EQ(spares_.open("t-2", SpareFiles::Size::kLarge)->old_bytes, 0u);
  EXPECT_TRUE(in("/spare").empty());
}

TEST_F(SpareFilesTest, OfAnEarlierProcessNothingIsWrittenAgain) {
  write("t-1", 10, 'a');
  write("t-2", 10, 'a');
  spares_.retire("t-1");
  SpareFiles next(files_, "/t", "/spare");
  ASSERT_TRUE(next.open_folder().ok());
  EXPECT_TRUE(in("/spare").empty());
  next.retire("t-2");
  EXPECT_TRUE(in("/spare").empty());
  EXPECT_TRUE(in("/t").empty());
}

TEST_F(SpareFilesTest, ASpareFileThatSomebodyHasRemovedIsNotMissed) {
  write("t-1", 10, 'a');
  spares_.retire("t-1");
  ASSERT_TRUE(files_.remove("/spare/t-1").ok());
  write("t-2", 10, 'b');
  EXPECT_EQ(spares_.reused(), 0u);
  EXPECT_EQ(length("/t/t-2"), 10u);
}

// ---- in the store -------------------------------------------------------------------------------------------------

TEST_F(SiteStoreTest, AfterTheFirstRoundsNoFileIsNew) {
  for (std::uint64_t round = 1; round <= 8; ++round) {
    const std::uint64_t before = store->files_reused();
    ASSERT_TRUE(submit(*store, round, static_cast<float>(round)).ok());
    ASSERT_TRUE(count(*store, round, 0.5F).ok());
    if (round > 2) EXPECT_EQ(store->files_reused(), before + 2) << "p and its chunks of round " << round;
    EXPECT_EQ(tensor_files(), 2u);
    EXPECT_EQ(residual_of(*store), values(static_cast<float>(round) / 2));
  }
}

TEST_F(SiteStoreTest, AFileOfALosslessCodecIsWrittenAgainToo) {
  for (std::uint64_t round = 1; round <= 4; ++round) {
    ASSERT_TRUE(submit(*store, round, static_cast<float>(round), true).ok());
    ASSERT_TRUE(store->resolve(kRun, RoundId(round), Outcome::kCounted).ok());
    EXPECT_EQ(store->files_reused(), round - 1);
  }
}

// An upload may still read when the outcome is there already, and the next round begins.
TEST_F(SiteStoreTest, WhatSomebodyReadsStaysAsItWasAlsoWhenItIsResolved) {
  const auto expect_round = [](const PendingUpdate& update, std::uint64_t round) {
    std::vector<float> p(6);
    ASSERT_TRUE(update.read_p(0, p).ok());
    EXPECT_EQ(p, values(static_cast<float>(round)));
    for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(as_text(update.read_chunk(i)->span()), chunk_text(i));
    EXPECT_EQ(as_text(update.read_trailer()->span()), kTrailer);
  };
  std::vector<PendingUpdate> held;
  for (std::uint64_t round = 1; round <= 4; ++round) {
    const Result<PendingUpdate> written = submit(*store, round, static_cast<float>(round));
    ASSERT_TRUE(written.ok());
    held.push_back(round % 2 == 0 ? *written : store->pending(kRun).value().value());
    ASSERT_TRUE(count(*store, round, 0.5F).ok());
    for (std::uint64_t past = 1; past <= round; ++past) expect_round(held[past - 1], past);
  }
  held.clear();
  const std::uint64_t before = store->files_reused();
  ASSERT_TRUE(submit(*store, 5, 5.0F).ok());
  EXPECT_EQ(store->files_reused(), before + 2) << "nobody reads them any more";
}

// A machine dies in the rounds that write files again, at any operation. What the records name is whole.
TEST_F(SiteStoreTest, ACrashWhileAFileIsWrittenAgainLeavesOldOrNew) {
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
    bool finished = false;
    for (std::uint64_t n = 0; !finished; ++n) {
      MemoryFileSystem disk;
      auto own = SiteStore::open(disk, kFolder, 0, leave_half).value();
      for (std::uint64_t round = 1; round <= 3; ++round) {
        ASSERT_TRUE(submit(*own, round, static_cast<float>(round)).ok() &&
                    count(*own, round, static_cast<float>(round) / 2).ok());
      }
      disk.fail_at(n, Fault::kCrash);
      const bool submitted = submit(*own, 4, 4.0F).ok();
      const bool counted = submitted && count(*own, 4, 2.0F).ok();
      finished = counted && submit(*own, 5, 5.0F).ok();
      disk.restart(unsynced, n + 1);
      own.reset();
      const auto again = SiteStore::open(disk, kFolder, 0, leave_half).value();
      const std::optional<PendingUpdate> pending = again->pending(kRun).value();
      const std::uint64_t round = pending ? pending->info().start.round.value() : 0;
      const float residual = residual_of(*again)[0];
      EXPECT_EQ(residual_of(*again), values(residual)) << n;
      EXPECT_TRUE(residual == 2.0F || (residual == 1.5F && !counted)) << n << ": residual " << residual;
      EXPECT_TRUE(!submitted || counted || round == 4 || residual == 2.0F) << n << ": what was promised is there";
      if (pending) {
        std::vector<float> p(6);
        ASSERT_TRUE(pending->read_p(0, p).ok());
        EXPECT_EQ(p, values(static_cast<float>(round))) << n;
        for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(as_text(pending->read_chunk(i)->span()), chunk_text(i)) << n;
      }
      EXPECT_EQ(disk.list("/site/tensors")->size(), pending ? 4u : 2u) << n;
      EXPECT_TRUE(disk.list("/site/spare")->empty()) << n;
      ASSERT_LT(n, 2000u);
    }
  }
}

}  // namespace
}  // namespace fluvial::store
