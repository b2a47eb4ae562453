// PosixFileSystem's promises about fsync: which calls it makes, and what it does when one fails. This executable
// replaces fsync by a function that records the path it was called for.
#include <gtest/gtest.h>
#include <sys/stat.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <filesystem>
#include <string>
#include <vector>

#include "core/base/testing.h"
#include "core/store/file_system.h"
#include "core/store/sqlite.h"

namespace {

std::vector<std::string> synced;  // paths, in order
int fails_with = 0;               // errno of every fsync from now on; 0: none fails

int note_sync(int descriptor, long call) {
  synced.push_back(std::filesystem::read_symlink("/proc/self/fd/" + std::to_string(descriptor)).string());
  if (fails_with == 0) return static_cast<int>(::syscall(call, descriptor));
  errno = fails_with;
  return -1;
}

}  // namespace

extern "C" int fsync(int descriptor) { return note_sync(descriptor, SYS_fsync); }
extern "C" int fdatasync(int descriptor) { return note_sync(descriptor, SYS_fdatasync); }

namespace fluvial::store {
namespace {

class PosixSync : public testing::Test {
 protected:
  PosixSync() { synced.clear(); }
  ~PosixSync() override { fails_with = 0; }
  static bool was_synced(const std::string& path) { return std::ranges::find(synced, path) != synced.end(); }

  const TemporaryFolder folder_;
  const std::string root_ = std::filesystem::canonical(folder_.path()).string();
  PosixFileSystem files_;
};

TEST_F(PosixSync, AFolderThatIsThereAlreadyIsMadeDurableToo) {
  const std::string made = join_path(root_, "made");
  ASSERT_EQ(::mkdir(made.c_str(), 0700), 0);  // by a process that was killed before the fsync
  ASSERT_TRUE(files_.make_folder(made).ok());
  EXPECT_TRUE(was_synced(root_));
}

TEST_F(PosixSync, WhereverWhoeverMadeFoldersWasKilledTheNextOneMakesThemAllDurable) {
  const std::string one = join_path(root_, "one");
  const std::string two = join_path(one, "two");
  const std::string three = join_path(two, "three");
  ASSERT_EQ(::mkdir(one.c_str(), 0700), 0);
  ASSERT_TRUE(files_.make_folder(two).ok());  // its own name is new, that of the one above may not be durable
  EXPECT_TRUE(was_synced(root_));
  EXPECT_TRUE(was_synced(one));
  synced.clear();
  ASSERT_TRUE(files_.make_folder(three).ok());
  EXPECT_TRUE(was_synced(two));
}

TEST_F(PosixSync, AFailedSyncSaysThatNothingIsKnownWhateverTheReason) {
  const std::string path = join_path(root_, "file");
  const auto file = files_.open(path, OpenMode::kCreate).value();
  for (const int number : {ENOSPC, EDQUOT, EIO}) {
    fails_with = number;
    EXPECT_EQ(file->sync().error().code, Code::kUnavailable) << number;
    EXPECT_EQ(file->sync_data().error().code, Code::kUnavailable) << number;
    EXPECT_EQ(files_.sync_folder(root_).error().code, Code::kUnavailable) << number;
    EXPECT_NE(file->sync().error().message.find(path), std::string::npos);
  }
}

TEST_F(PosixSync, ATransactionWhoseSyncMetAFullDiskIsOpenUntilTheNextStart) {
  const char* const steps[] = {"CREATE TABLE t (n INTEGER)"};
  auto database = Database::open(files_, join_path(root_, "db"), steps, "another").value();
  fails_with = ENOSPC;
  const auto insert = [&] { return database->run("INSERT INTO t VALUES (1)"); };
  EXPECT_FALSE(database->transact(insert).ok());
  fails_with = 0;
  EXPECT_TRUE(database->fault().has_value());
  EXPECT_EQ(database->transact(insert).error().code, Code::kUnavailable);
  database.reset();
  database = Database::open(files_, join_path(root_, "db"), steps, "another").value();
  EXPECT_TRUE(database->transact(insert).ok());
}

}  // namespace
}  // namespace fluvial::store
