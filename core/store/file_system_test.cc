#include "core/store/file_system.h"

#include <gtest/gtest.h>
#include <sys/stat.h>
#include <unistd.h>

#include "core/base/testing.h"
#include "core/store/memory_file_system.h"

namespace fluvial::store {
namespace {

std::string content(FileSystem& files, const std::string& path) {
  Result<Buffer> read = read_file(files, path, 1 << 20);
  return read.ok() ? std::string(as_text(read->span())) : "(" + std::string(code_name(read.error().code)) + ")";
}

Status write_text(FileSystem& files, const std::string& path, std::string_view first, std::string_view second = "") {
  const ByteSpan parts[] = {as_byte_span(first), as_byte_span(second)};
  return write_file_atomically(files, path, parts);
}

// One body for both implementations.
void exercise(FileSystem& files, const std::string& root) {
  const std::string folder = join_path(root, "a/b");
  ASSERT_TRUE(files.make_folder(folder).ok());
  ASSERT_TRUE(files.make_folder(folder).ok());
  const std::string path = join_path(folder, "file");
  EXPECT_EQ(files.open(path, OpenMode::kRead).error().code, Code::kNotFound);
  EXPECT_EQ(files.open(join_path(root, "none/file"), OpenMode::kCreate).error().code, Code::kNotFound);
  ASSERT_TRUE(write_text(files, path, "hello ", "world").ok());
  EXPECT_EQ(content(files, path), "hello world");
  EXPECT_EQ(read_file(files, path, 5).error().code, Code::kInvalidArgument);
  EXPECT_EQ(files.list(folder).value(), std::vector<std::string>{"file"});

  auto file = files.open(path, OpenMode::kReadWrite).value();
  ASSERT_TRUE(file->truncate(5).ok());
  ASSERT_TRUE(file->write_at(8, as_byte_span("x")).ok());  // a hole reads as zeros
  EXPECT_EQ(file->size().value(), 9u);
  Buffer tail(8);
  EXPECT_EQ(file->read_at(5, tail.span()).value(), 4u);
  EXPECT_EQ(as_text(tail.span().first(4)), std::string_view("\0\0\0x", 4));
  EXPECT_EQ(read_exactly(*file, 5, tail.span(), "it").error().code, Code::kDataLoss);

  auto other = files.open(path, OpenMode::kReadWrite).value();
  EXPECT_TRUE(file->try_lock().value());
  EXPECT_FALSE(other->try_lock().value());
  file->unlock();
  EXPECT_TRUE(other->try_lock().value());

  auto anew = files.open(path, OpenMode::kTruncate).value();
  EXPECT_EQ(anew->size().value(), 0u);
  ASSERT_TRUE(anew->write_at(0, as_byte_span("new")).ok());
  EXPECT_EQ(content(files, path), "new");
  EXPECT_EQ(file->size().value(), 9u);  // who has the old one open keeps it

  auto unnamed = files.open_unnamed(folder).value();
  ASSERT_TRUE(unnamed->write_at(0, as_byte_span("spill")).ok());
  EXPECT_EQ(files.list(folder)->size(), 1u);
  EXPECT_EQ(files.remove(join_path(root, "a")).error().code, Code::kAlreadyExists);
  ASSERT_TRUE(files.remove(path).ok());
  EXPECT_EQ(files.remove(path).error().code, Code::kNotFound);
  EXPECT_FALSE(files.exists(path).value());
  EXPECT_TRUE(files.exists(folder).value());
}

TEST(FileSystem, PosixAndMemoryAgree) {
  const TemporaryFolder folder;
  PosixFileSystem posix;
  exercise(posix, folder.path());
  MemoryFileSystem memory;
  ASSERT_TRUE(memory.make_folder("/root").ok());
  exercise(memory, "/root");
}

// As an attacker leaves it in a folder that many users may write to: a link, and a file that both names lead to.
TEST(FileSystem, NothingIsWrittenThroughALinkUnderTheTemporaryName) {
  const TemporaryFolder folder;
  PosixFileSystem files;
  const std::string path = join_path(folder.path(), "model");
  const std::string target = join_path(folder.path(), "target");
  ASSERT_TRUE(write_text(files, target, "of another").ok());
  for (const auto make : {::symlink, ::link}) {
    ASSERT_EQ(make(target.c_str(), temporary_of(path).c_str()), 0);
    ASSERT_TRUE(write_text(files, path, "ours").ok());
    EXPECT_EQ(content(files, target), "of another");
    EXPECT_EQ(content(files, path), "ours");
    struct stat status{};
    ASSERT_EQ(::lstat(path.c_str(), &status), 0);
    EXPECT_EQ(status.st_mode, S_IFREG | 0600);
  }
}

TEST(FileSystem, ErrorsNameThePath) {
  PosixFileSystem files;
  const Error error = files.open("/proc/none/x", OpenMode::kCreate).error();
  EXPECT_NE(error.message.find("/proc/none/x"), std::string::npos) << error.message;
}

TEST(WriteFileAtomically, OldOrNewAtEveryFailure) {
  for (const Fault fault : {Fault::kNoSpace, Fault::kIo, Fault::kShortWrite, Fault::kCrash}) {
    for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
      bool finished = false;
      for (std::uint64_t n = 0; !finished; ++n) {
        MemoryFileSystem files;
        ASSERT_TRUE(files.make_folder("/d").ok());
        ASSERT_TRUE(write_text(files, "/d/f", "old").ok());
        files.fail_at(n, fault);
        const Status status = write_text(files, "/d/f", std::string(3000, 'n'), "ew");
        const std::string now = content(files, "/d/f");
        finished = status.ok();
        files.restart(unsynced, n);
        const std::string after = content(files, "/d/f");
        const std::string renewed = std::string(3000, 'n') + "ew";
        EXPECT_TRUE(after == "old" || after == renewed) << "operation " << n << ": " << after.substr(0, 40);
        if (finished) {
          EXPECT_EQ(after, renewed);
        } else if (fault != Fault::kCrash) {
          EXPECT_TRUE(now == "old" || now == renewed);
        }
        ASSERT_LT(n, 100u);
      }
    }
  }
}

TEST(MemoryFileSystem, AFailedWriteLeavesNoTemporaryFile) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/d").ok());
  files.fail_at(1, Fault::kShortWrite);
  const Status status = write_text(files, "/d/f", "content");
  EXPECT_EQ(status.error().code, Code::kResourceExhausted);
  EXPECT_TRUE(files.list("/d")->empty());
}

TEST(MemoryFileSystem, ACrashLosesWhatWasNotSynced) {
  MemoryFileSystem files;
  ASSERT_TRUE(files.make_folder("/d").ok());
  auto file = files.open("/d/f", OpenMode::kCreate).value();
  ASSERT_TRUE(file->write_at(0, as_byte_span("one")).ok());
  ASSERT_TRUE(file->sync().ok());
  ASSERT_TRUE(files.sync_folder("/d").ok());
  ASSERT_TRUE(file->write_at(0, as_byte_span("two")).ok());
  files.restart(Unsynced::kLost);
  EXPECT_EQ(content(files, "/d/f"), "one");
  EXPECT_EQ(file->sync().error().code, Code::kUnavailable);
}

TEST(MemoryFileSystem, WhatASyncKeepsIsTheWholeFileAsItWas) {
  Rng rng(11);
  for (int run = 0; run < 200; ++run) {
    MemoryFileSystem files;
    auto file = files.open("/f", OpenMode::kCreate).value();
    ASSERT_TRUE(files.sync_folder("/").ok());
    std::string now;
    std::string synced;
    for (int step = 0; step < 30; ++step) {
      const std::size_t at = rng.below(100);
      switch (rng.below(4)) {
        case 0:
          ASSERT_TRUE(file->truncate(at).ok());
          now.resize(at);
          break;
        case 1:
          ASSERT_TRUE(file->sync().ok());
          synced = now;
          break;
        default: {
          const std::string text(1 + rng.below(40), static_cast<char>('a' + rng.below(26)));
          ASSERT_TRUE(file->write_at(at, as_byte_span(text)).ok());
          if (now.size() < at + text.size()) now.resize(at + text.size());
          now.replace(at, text.size(), text);
        }
      }
    }
    files.restart(Unsynced::kLost);
    ASSERT_EQ(content(files, "/f"), synced);
  }
}

}  // namespace
}  // namespace fluvial::store
