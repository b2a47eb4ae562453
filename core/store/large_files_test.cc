// Places beyond 32 bits, in files that are holes almost everywhere.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <map>

#include "core/base/testing.h"
#include "core/store/model_store.h"
#include "core/store/safetensors.h"
#include "core/store/staging.h"

namespace fluvial::store {
namespace {

constexpr std::uint64_t kLarge = 1'200'000'000;         // values
constexpr std::uint64_t kLargeBytes = 4'800'000'000;    // more than 2^32
constexpr std::size_t kTailBytes = 10 * sizeof(float);  // of the tensor behind them

round::Schema large_schema() {
  return round::Schema::make({{"w", round::DType::kF32, {kLarge / 1'000, 1'000}}, {"b", round::DType::kF32, {10}}})
      .value();
}

Buffer tail() {
  Buffer bytes(kTailBytes);
  for (std::size_t i = 0; i < kTailBytes; ++i) bytes.data()[i] = static_cast<std::byte>(i + 1);
  return bytes;
}

TEST(LargeFiles, AHeaderNamesPlacesBeyondFourGibibytes) {
  const TemporaryFolder folder;
  PosixFileSystem files;
  const std::string path = folder.path() + "/x.safetensors";
  const std::string header = format_model_header(large_schema(), {});
  EXPECT_THAT(header, testing::HasSubstr("[4800000000,4800000040]"));
  {
    const auto file = files.open(path, OpenMode::kTruncate).value();
    ASSERT_TRUE(file->write_at(0, as_byte_span(header)).ok());
    ASSERT_TRUE(file->write_at(header.size() + kLargeBytes, tail().span()).ok());
  }
  const ModelHeader read = read_model_header(*files.open(path, OpenMode::kRead).value(), path).value();
  EXPECT_EQ(read.schema.value_count(), kLarge + 10);
  EXPECT_EQ(read.schema.model_bytes(), kLargeBytes + kTailBytes);
  EXPECT_EQ(read.schema.tensor_offset_bytes(1), kLargeBytes);
  Buffer bytes(kTailBytes);
  const auto file = files.open(path, OpenMode::kRead).value();
  ASSERT_TRUE(read_exactly(*file, read.data_offset + read.schema.tensor_offset_bytes(1), bytes.span(), path).ok());
  EXPECT_TRUE(std::ranges::equal(bytes.span(), tail().span()));
}

TEST(LargeFiles, AModelIsWrittenWhereItBelongs) {
  const TemporaryFolder folder;
  PosixFileSystem files;
  ModelStore store = ModelStore::open(files, folder.path()).value();
  const round::ModelKey key{RunId(1), ModelVersion(1)};
  ModelWriter writer = store.begin(key, large_schema()).value();
  ASSERT_TRUE(writer.write(kLargeBytes, tail().span()).ok());
  const auto file = files.open(temporary_of(store.path_of(key)), OpenMode::kRead).value();
  const std::uint64_t size = file->size().value();
  EXPECT_GT(size, kLargeBytes);
  Buffer bytes(kTailBytes);
  ASSERT_TRUE(read_exactly(*file, size - kTailBytes, bytes.span(), "it").ok());
  EXPECT_TRUE(std::ranges::equal(bytes.span(), tail().span()));
  EXPECT_THAT(store.keep(std::move(writer), Digest{}, {}).error().message,
              testing::HasSubstr("40 of 4800000040 bytes were written"));
}

// Keeps of each write its place, its length and its first byte.
struct Writes {
  struct One {
    std::size_t size;
    std::byte first;
  };
  std::map<std::uint64_t, One> at;
};

class HollowFile final : public File {
 public:
  explicit HollowFile(Writes& writes) : writes_(writes) {}
  Result<std::size_t> read_at(std::uint64_t offset, MutableByteSpan into) override {
    const auto found = writes_.at.find(offset);
    if (found == writes_.at.end()) return Error{Code::kDataLoss, "nothing was written there"};
    into.front() = found->second.first;
    return std::min(into.size(), found->second.size);
  }
  Status write_at(std::uint64_t offset, ByteSpan bytes) override {
    writes_.at[offset] = {bytes.size(), bytes.front()};
    return {};
  }
  Status truncate(std::uint64_t) override { return {}; }
  Result<std::uint64_t> size() override { return std::uint64_t{0}; }
  Status sync() override { return {}; }
  Status sync_data() override { return {}; }
  Result<bool> try_lock() override { return true; }
  void unlock() override {}

 private:
  Writes& writes_;
};

class HollowFiles final : public FileSystem {
 public:
  Result<std::unique_ptr<File>> open(const std::string&, OpenMode) override { return made(); }
  Result<std::unique_ptr<File>> open_unnamed(const std::string&) override { return made(); }
  Status rename(const std::string&, const std::string&) override { return {}; }
  Status remove(const std::string&) override { return {}; }
  Result<bool> exists(const std::string&) override { return false; }
  Result<std::vector<std::string>> list(const std::string&) override { return std::vector<std::string>(); }
  Status make_folder(const std::string&) override { return {}; }
  Status sync_folder(const std::string&) override { return {}; }
  Writes writes;

 private:
  std::unique_ptr<File> made() { return std::make_unique<HollowFile>(writes); }
};

TEST(LargeFiles, ChunksOfOneUpdateBeyondFourGibibytesHaveTheirPlaces) {
  constexpr std::size_t kChunkBytes = std::size_t{1} << 30;  // of which this touches one page
  constexpr std::uint64_t kChunks = 6;
  HollowFiles files;
  StagingBudget budget(0);
  StagedUpdate update(budget, files, "/s", kChunks * kChunkBytes);
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    Buffer chunk(kChunkBytes);
    chunk.data()[0] = static_cast<std::byte>(i);
    ASSERT_TRUE(update.append(std::move(chunk)).ok());
  }
  EXPECT_EQ(update.spilled_bytes(), kChunks * kChunkBytes);
  EXPECT_EQ(budget.bytes_spilled(), kChunks * kChunkBytes);
  EXPECT_TRUE(files.writes.at.contains(std::uint64_t{5} << 30));
  Buffer scratch;
  for (std::uint64_t i = 0; i < kChunks; ++i) {
    const Result<ByteSpan> chunk = update.read(i, scratch);
    ASSERT_TRUE(chunk.ok());
    EXPECT_EQ(chunk->size(), kChunkBytes);
    EXPECT_EQ(static_cast<std::uint64_t>(chunk->front()), i);
  }
}

}  // namespace
}  // namespace fluvial::store
