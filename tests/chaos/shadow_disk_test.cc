#include "tests/chaos/shadow_disk.h"

#include <gtest/gtest.h>

#include <set>

#include "core/base/rng.h"
#include "core/base/testing.h"
#include "core/store/memory_file_system.h"
#include "tests/chaos/power_cut.h"

namespace fluvial::chaos {
namespace {

using store::OpenMode;

class ShadowDiskTest : public testing::Test {
 protected:
  ShadowDiskTest() {
    EXPECT_TRUE(store::PosixFileSystem().make_folder(folder_).ok());
    reopen();
  }
  void reopen() { disk_ = ShadowDisk::open(shadow_).value(); }  // as a process that comes after a killed one
  void write(const std::string& name, std::string_view text, bool sync) {
    const auto file = disk_->open(folder_ + "/" + name, OpenMode::kTruncate).value();
    ASSERT_TRUE(file->write_at(0, as_byte_span(text)).ok());
    if (sync) ASSERT_TRUE(file->sync().ok());
  }
  std::string read(const std::string& name) {
    store::PosixFileSystem files;
    const auto content = store::read_file(files, folder_ + "/" + name, 1 << 20);
    return content.ok() ? std::string(as_text(content->span())) : "(none)";
  }
  void cut(Unsynced unsynced, std::uint64_t seed = 0) {
    disk_.reset();
    ASSERT_TRUE(cut_power(folder_, shadow_, unsynced, seed).ok());
    reopen();
  }

  const TemporaryFolder root_;
  const std::string folder_ = root_.path() + "/node";
  const std::string shadow_ = root_.path() + "/shadow";
  std::unique_ptr<ShadowDisk> disk_;
};

TEST_F(ShadowDiskTest, APowerCutLeavesWhatWasSyncedAndNoMore) {
  write("both", "one", true);
  ASSERT_TRUE(disk_->sync_folder(folder_).ok());
  write("both", "two", false);
  write("content", "three", true);
  cut(Unsynced::kLost);
  EXPECT_EQ(read("both"), "one");
  EXPECT_EQ(read("content"), "(none)");
}

TEST_F(ShadowDiskTest, ANameWithoutContentIsAnEmptyFile) {
  write("f", "never synced", false);
  ASSERT_TRUE(disk_->sync_folder(folder_).ok());
  cut(Unsynced::kLost);
  EXPECT_EQ(read("f"), "");
}

TEST_F(ShadowDiskTest, WhatAKilledProcessLeftIsNotDurableUntilTheNextOneSyncsIt) {
  write("f", "old", true);
  ASSERT_TRUE(disk_->sync_folder(folder_).ok());
  write("f", "new", false);
  reopen();
  EXPECT_EQ(read("f"), "new");
  cut(Unsynced::kLost);
  EXPECT_EQ(read("f"), "old");
  write("f", "newer", false);
  reopen();
  ASSERT_TRUE(disk_->open(folder_ + "/f", OpenMode::kReadWrite).value()->sync().ok());
  ASSERT_TRUE(disk_->sync_folder(folder_).ok());  // it was made anew under that name
  cut(Unsynced::kLost);
  EXPECT_EQ(read("f"), "newer");
}

TEST_F(ShadowDiskTest, ARenameWithoutItsFolderIsUndone) {
  write("f", "old", true);
  ASSERT_TRUE(disk_->sync_folder(folder_).ok());
  write("f.tmp", "new", true);
  ASSERT_TRUE(disk_->rename(folder_ + "/f.tmp", folder_ + "/f").ok());
  cut(Unsynced::kLost);
  EXPECT_EQ(read("f"), "old");
}

TEST_F(ShadowDiskTest, ATornFileIsOfBothInEachSector) {
  const std::string older(4096, 'a'), newer(4096, 'b');
  std::set<std::string> seen;
  for (std::uint64_t seed = 0; seed < 20; ++seed) {
    write("f", older, true);
    ASSERT_TRUE(disk_->sync_folder(folder_).ok());
    const auto file = disk_->open(folder_ + "/f", OpenMode::kReadWrite).value();
    ASSERT_TRUE(file->write_at(0, as_byte_span(newer)).ok());
    cut(Unsynced::kTorn, seed);
    const std::string left = read("f");
    for (std::size_t at = 0; at < left.size(); at += 512) {
      const std::string sector = left.substr(at, 512);
      ASSERT_TRUE(sector == older.substr(0, 512) || sector == newer.substr(0, 512)) << seed;
    }
    seen.insert(left);
  }
  EXPECT_GT(seen.size(), 10u);
}

// The same operations on a disk in memory, whose rules the stores are tested by, leave the same.
TEST_F(ShadowDiskTest, LosesWhatTheDiskInMemoryLoses) {
  Rng rng(3);
  for (int run = 0; run < 20; ++run) {
    store::MemoryFileSystem memory;
    ASSERT_TRUE(memory.make_folder("/d").ok());
    const auto both = [&](const std::function<void(store::FileSystem&, const std::string&)>& change) {
      change(memory, "/d");
      change(*disk_, folder_);
    };
    for (int step = 0; step < 60; ++step) {
      const std::string name = "/" + std::string(1, static_cast<char>('a' + rng.below(3)));
      const std::string other = "/" + std::string(1, static_cast<char>('a' + rng.below(3)));
      const std::string text(1 + rng.below(700), static_cast<char>('A' + rng.below(26)));
      const std::uint64_t at = rng.below(1000);
      switch (rng.below(6)) {
        case 0: both([&](auto& files, auto& d) { (void)files.sync_folder(d).ok(); }); break;
        case 1: both([&](auto& files, auto& d) { (void)files.remove(d + name).ok(); }); break;
        case 2:
          if (name != other) both([&](auto& files, auto& d) { (void)files.rename(d + name, d + other).ok(); });
          break;
        case 3:
          both([&](auto& files, auto& d) {
            if (auto file = files.open(d + name, OpenMode::kReadWrite); file.ok()) (void)(*file)->sync().ok();
          });
          break;
        default:
          both([&](auto& files, auto& d) {
            const auto file = files.open(d + name, OpenMode::kCreate).value();
            ASSERT_TRUE(file->truncate(at).ok());
            ASSERT_TRUE(file->write_at(at, as_byte_span(text)).ok());
          });
      }
    }
    memory.restart(store::Unsynced::kLost);
    cut(Unsynced::kLost);
    const auto left = memory.list("/d").value();
    ASSERT_EQ(disk_->list(folder_).value(), left) << run;
    for (const std::string& name : left) {
      const auto expected = store::read_file(memory, "/d/" + name, 1 << 20).value();
      ASSERT_EQ(read(name), as_text(expected.span())) << run << ": " << name;
      ASSERT_TRUE(disk_->remove(folder_ + "/" + name).ok());
    }
    ASSERT_TRUE(disk_->sync_folder(folder_).ok());
  }
}

TEST_F(ShadowDiskTest, FailsAsItIsToldAndNoLonger) {
  write("f", "old", true);
  ASSERT_TRUE(disk_->sync_folder(folder_).ok());
  const auto file = disk_->open(folder_ + "/f", OpenMode::kReadWrite).value();
  Buffer into(3);
  ASSERT_TRUE(set_disk_faults(shadow_, DiskFaults{DiskFault::kFull, 1, 1}).ok());
  EXPECT_EQ(file->write_at(0, as_byte_span("new")).error().code, Code::kResourceExhausted);
  EXPECT_EQ(file->sync().error().code, Code::kUnavailable);
  EXPECT_TRUE(file->read_at(0, into.span()).ok());
  ASSERT_TRUE(set_disk_faults(shadow_, DiskFaults{DiskFault::kIo, 1, 2}).ok());
  EXPECT_EQ(file->read_at(0, into.span()).error().code, Code::kUnavailable);
  ASSERT_TRUE(set_disk_faults(shadow_, DiskFaults{DiskFault::kShort, 1, 3}).ok());
  EXPECT_EQ(file->write_at(0, as_byte_span("newnew")).error().code, Code::kResourceExhausted);
  ASSERT_TRUE(set_disk_faults(shadow_, std::nullopt).ok());
  EXPECT_EQ(read("f"), "new");
  EXPECT_TRUE(file->sync().ok());
  cut(Unsynced::kLost);
  EXPECT_EQ(read("f"), "new");
}

}  // namespace
}  // namespace fluvial::chaos
