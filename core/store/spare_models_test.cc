// The file of a pruned model is written again; and nobody who reads one, and nothing that crashes, sees it.
#include "core/store/spare_models.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <filesystem>
#include <set>

#include "core/base/testing.h"
#include "core/store/memory_file_system.h"
#include "core/store/model_store.h"
#include "core/store/sole.h"

namespace fluvial::store {
namespace {

constexpr RunId kSpareRun{1};
constexpr std::size_t kSpareValues = 600;  // some sectors, so that a write can be torn

round::Schema spare_schema() { return round::Schema::make({{"w", round::DType::kF32, {kSpareValues}}}).value(); }
std::vector<float> spare_model(std::uint64_t round) {
  return std::vector<float>(kSpareValues, static_cast<float>(round) + 0.5F);
}
ByteSpan spare_bytes(const std::vector<float>& model) { return std::as_bytes(std::span(model)); }
Digest digest_of(std::uint64_t round) {
  const std::vector<float> model = spare_model(round);
  return model_digest(spare_bytes(model));
}
Status commit(ModelStore& models, std::uint64_t round, std::uint64_t kept = 2, RunId run = kSpareRun,
              const std::set<ModelVersion>& others = {}) {
  const std::vector<float> model = spare_model(round);
  FLUVIAL_TRY(models.put({run, ModelVersion(round)}, spare_schema(), spare_bytes(model), digest_of(round), {}));
  return models.prune(run, ModelVersion(round), kept, others);
}

class SpareModelsOnDisk : public testing::Test {
 protected:
  std::string path(std::uint64_t round) const { return models_.path_of({kSpareRun, ModelVersion(round)}); }
  ino_t inode(std::uint64_t round) const {
    struct stat status{};
    return ::stat(path(round).c_str(), &status) == 0 ? status.st_ino : 0;
  }
  void commit_until(std::uint64_t last, std::uint64_t first = 0) {
    for (std::uint64_t round = first; round <= last; ++round) ASSERT_TRUE(commit(models_, round).ok());
  }
  std::vector<std::string> names(RunId run = kSpareRun) {
    return files_.list(join_path(folder_.path(), "run-" + std::to_string(run.value()))).value();
  }
  void expect_whole(std::uint64_t round) {
    EXPECT_TRUE(models_.load({kSpareRun, ModelVersion(round)}, digest_of(round)).ok()) << round;
  }

  const TemporaryFolder folder_;
  PosixFileSystem files_;
  ModelStore models_ = ModelStore::open(files_, folder_.path()).value();
};

TEST_F(SpareModelsOnDisk, TheModelThatWasPushedOutIsTheFileOfTheNext) {
  commit_until(2);
  const ino_t first = inode(1);
  commit_until(3, 3);  // pushes round 1 out
  EXPECT_EQ(names(), (std::vector<std::string>{"round-1.spare.tmp", "round-2.safetensors", "round-3.safetensors"}));
  commit_until(4, 4);
  EXPECT_EQ(inode(4), first);
  for (const std::uint64_t round : {3, 4}) expect_whole(round);
  commit_until(20, 5);
  EXPECT_EQ(names().size(), 3u) << "those that are kept, and one";
  EXPECT_EQ(models_.sweep({{kSpareRun, ModelVersion(20)}, {kSpareRun, ModelVersion(19)}}).value(), 1u);
  EXPECT_EQ(names(), (std::vector<std::string>{"round-19.safetensors", "round-20.safetensors"}));
}

// Headers and models of other lengths.
TEST_F(SpareModelsOnDisk, ASpareFileIsAsLongAsTheModelThatIsWritten) {
  commit_until(11);  // the header grows with the number
  const std::string folder = join_path(folder_.path(), "run-1");
  for (const std::size_t bytes : {std::size_t{100}, std::size_t{100'000}}) {
    const std::string text(bytes, 'x');
    const ByteSpan parts[] = {as_byte_span(text)};
    ASSERT_TRUE(drop_spare_models(files_, folder).ok());
    ASSERT_TRUE(write_file_atomically(files_, join_path(folder, "round-9.spare.tmp"), parts).ok());
    ASSERT_TRUE(commit(models_, 12).ok());
    expect_whole(12);
    ASSERT_TRUE(files_.remove(path(12)).ok());
  }
}

TEST_F(SpareModelsOnDisk, WhoReadsAModelReadsItToTheEnd) {
  commit_until(2);
  const std::string original = std::string(as_text(read_file(files_, path(1), 1 << 20)->span()));
  const int descriptor = ::open(path(1).c_str(), O_RDONLY | O_CLOEXEC);  // another process, or a backup
  ASSERT_GE(descriptor, 0);
  commit_until(4, 3);
  std::string read(original.size(), '\0');
  ASSERT_EQ(::pread(descriptor, read.data(), read.size(), 0), static_cast<ssize_t>(read.size()));
  EXPECT_EQ(read, original);
  ::close(descriptor);

  const std::string second = join_path(folder_.path(), "linked");
  ASSERT_EQ(::link(path(4).c_str(), second.c_str()), 0);
  const std::string linked = std::string(as_text(read_file(files_, second, 1 << 20)->span()));
  commit_until(8, 5);
  EXPECT_EQ(as_text(read_file(files_, second, 1 << 20)->span()), linked);
}

TEST_F(SpareModelsOnDisk, WhoHasMappedAModelReadsItToTheEnd) {
  commit_until(2);
  const std::string original = std::string(as_text(read_file(files_, path(1), 1 << 20)->span()));
  const int descriptor = ::open(path(1).c_str(), O_RDONLY | O_CLOEXEC);
  ASSERT_GE(descriptor, 0);
  void* const mapped = ::mmap(nullptr, original.size(), PROT_READ, MAP_SHARED, descriptor, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ::close(descriptor);
  commit_until(6, 3);
  EXPECT_EQ(std::string_view(static_cast<const char*>(mapped), original.size()), original);
  ::munmap(mapped, original.size());
}

TEST_F(SpareModelsOnDisk, WhatIsNotPushedOutByACommitGivesItsRoomBack) {
  commit_until(0);
  for (std::uint64_t round = 1; round <= 5; ++round) {
    ASSERT_TRUE(commit(models_, round, 2, kSpareRun, {ModelVersion(1)}).ok());
  }
  ASSERT_TRUE(models_.prune(kSpareRun, ModelVersion(5), 2).ok());  // the label of round 1 is taken away
  EXPECT_EQ(names(), (std::vector<std::string>{"round-3.spare.tmp", "round-4.safetensors", "round-5.safetensors"}));
}

TEST_F(SpareModelsOnDisk, OneFileWaitsAtMost) {
  for (std::uint64_t round = 0; round <= 5; ++round) ASSERT_TRUE(commit(models_, round, 4).ok());
  for (const std::uint64_t kept : {3, 2, 1}) ASSERT_TRUE(models_.prune(kSpareRun, ModelVersion(5), kept).ok());
  EXPECT_EQ(names(), (std::vector<std::string>{"round-4.spare.tmp", "round-5.safetensors"}));
}

TEST_F(SpareModelsOnDisk, ARunThatBeginsTakesTheRoomOfThoseBefore) {
  commit_until(4);
  ASSERT_EQ(names().size(), 3u);
  ASSERT_TRUE(commit(models_, 0, 2, RunId(2)).ok());
  EXPECT_EQ(names(), (std::vector<std::string>{"round-3.safetensors", "round-4.safetensors"}));
}

TEST_F(SpareModelsOnDisk, AFileKnowsWhetherItIsTheOnlyOne) {
  const std::string at = join_path(folder_.path(), "file");
  const std::unique_ptr<File> file = files_.open(at, OpenMode::kCreate).value();
  EXPECT_TRUE(is_sole(*file));
  for (const OpenMode mode : {OpenMode::kRead, OpenMode::kReadWrite}) {
    const std::unique_ptr<File> other = files_.open(at, mode).value();
    EXPECT_FALSE(is_sole(*file));
  }
  EXPECT_TRUE(is_sole(*file));
  MemoryFileSystem memory;
  const std::unique_ptr<File> one = memory.open("/file", OpenMode::kCreate).value();
  EXPECT_TRUE(is_sole(*one));
  const std::unique_ptr<File> other = memory.open("/file", OpenMode::kRead).value();
  EXPECT_FALSE(is_sole(*one));
}

// What a failed attempt has left under the temporary name may be read, too: the next one makes another file.
TEST(SpareModels, WhatAFailedCommitLeftIsNotEmptied) {
  MemoryFileSystem files;
  ModelStore models = ModelStore::open(files, "/m").value();
  for (std::uint64_t round = 0; round <= 2; ++round) ASSERT_TRUE(commit(models, round).ok());
  const std::string text = "of somebody";
  const ByteSpan parts[] = {as_byte_span(text)};
  ASSERT_TRUE(write_file_atomically(files, "/m/run-1/round-3.safetensors.tmp", parts).ok());
  const std::unique_ptr<File> reader = files.open("/m/run-1/round-3.safetensors.tmp", OpenMode::kRead).value();
  for (std::uint64_t round = 3; round <= 5; ++round) ASSERT_TRUE(commit(models, round).ok());
  Buffer read(text.size());
  ASSERT_TRUE(read_exactly(*reader, 0, read.span(), "it").ok());
  EXPECT_EQ(as_text(read.span()), text);
}

// Every operation of five commits is the last one once, the unsynced is kept, lost or torn. Whatever has a model's name
// then is that model, whole: also those that were pruned, which the journal still names.
TEST(SpareModels, WhateverCrashesEachNameHasItsModel) {
  std::uint64_t crashes = 0;
  for (std::uint64_t operation = 0;; ++operation) {
    bool crashed = false;
    for (const Unsynced unsynced : {Unsynced::kKept, Unsynced::kLost, Unsynced::kTorn, Unsynced::kTorn}) {
      MemoryFileSystem files;
      ModelStore models = ModelStore::open(files, "/m").value();
      std::uint64_t done = 0;
      for (; done <= 3; ++done) ASSERT_TRUE(commit(models, done).ok());
      files.fail_at(operation, Fault::kCrash);
      while (done <= 8 && commit(models, done).ok()) ++done;
      crashed = files.crashed();
      files.restart(unsynced, operation * 7 + ++crashes);
      std::set<ModelVersion> found;
      const auto listed = models.list().value();
      for (const round::ModelKey& key : listed) {
        EXPECT_TRUE(models.load(key, digest_of(key.version.value())).ok())
            << "round " << key.version.value() << " after operation " << operation;
        found.insert(key.version);
      }
      EXPECT_TRUE(found.contains(ModelVersion(done - 1))) << "the last that was committed";
    }
    if (!crashed) break;
  }
  EXPECT_GT(crashes, 100u);
}

// A fault that is none of the machine's: each operation fails once, and the next commit goes on.
TEST(SpareModels, AfterAFaultOfTheDiskTheNextCommitWorks) {
  for (const auto fault : {Fault::kIo, Fault::kNoSpace, Fault::kShortWrite}) {
    for (std::uint64_t operation = 0; operation < 30; ++operation) {
      MemoryFileSystem files;
      ModelStore models = ModelStore::open(files, "/m").value();
      for (std::uint64_t round = 0; round <= 3; ++round) ASSERT_TRUE(commit(models, round).ok());
      files.fail_at(operation, fault);
      for (std::uint64_t round = 4; round <= 6; ++round) {
        if (!commit(models, round).ok()) ASSERT_TRUE(commit(models, round).ok()) << "operation " << operation;
      }
      const auto listed = models.list().value();
      for (const round::ModelKey& key : listed) {
        EXPECT_TRUE(models.load(key, digest_of(key.version.value())).ok()) << "operation " << operation;
      }
      EXPECT_LE(files.list("/m/run-1")->size(), 4u) << "operation " << operation;
    }
  }
}

}  // namespace
}  // namespace fluvial::store
