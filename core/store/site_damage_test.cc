// A store whose rows a disk has damaged, or somebody else wrote: it says so, reserves nothing by them, and touches no
// file but its own.
#include "core/store/site_store_test_support.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr const char* kOther = "/site/key.pem";

class SiteDamage : public SiteStoreTest {
 protected:
  SiteDamage() {
    EXPECT_TRUE(submit(*store, 1, 1).ok());
    EXPECT_TRUE(count(*store, 1, 0.5F).ok());
    EXPECT_TRUE(submit(*store, 2, 1).ok());
    const std::string key = "a private key";
    const ByteSpan parts[] = {as_byte_span(key)};
    EXPECT_TRUE(write_file_atomically(files, kOther, parts).ok());
  }
  void write(const char* sql, SqlValue value) {
    store.reset();
    const auto database = Database::open_as_it_is(files, "/site/site.db", "the test");
    ASSERT_TRUE(database.ok());
    ASSERT_TRUE((*database)->run(sql, {value}).ok());
  }
  void expect_damaged() {
    reopen();
    const auto pending = store->pending(kRun);
    ASSERT_FALSE(pending.ok());
    EXPECT_EQ(pending.error().code, Code::kDataLoss) << pending.error().message;
    EXPECT_FALSE(store->resolve(kRun, RoundId(2), Outcome::kLate).ok());
    EXPECT_TRUE(files.exists(kOther).value());
  }
};

TEST_F(SiteDamage, ChunksThatEndBeforeTheyBegin) {
  write("UPDATE pending SET chunk_ends = ?",
        ByteSpan(as_byte_span(std::string_view("\7\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16))));
  expect_damaged();
}

TEST_F(SiteDamage, ChunksBeyondTheirFile) {
  write("UPDATE pending SET chunk_ends = ?",
        ByteSpan(as_byte_span(std::string_view("\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0", 16))));
  reopen();
  EXPECT_EQ(store->pending(kRun).error().code, Code::kDataLoss) << "before memory is reserved for them";
}

TEST_F(SiteDamage, MoreIntegersThanAnyModelHas) {
  write("UPDATE pending SET integer_count = ?", std::uint64_t{1} << 60);
  expect_damaged();
}

TEST_F(SiteDamage, ATrailerOfAnotherLength) {
  write("UPDATE pending SET trailer_bytes = ?", std::uint64_t{1} << 60);
  expect_damaged();
}

TEST_F(SiteDamage, ACodecsStateThatIsNotThere) {
  write("UPDATE pending SET state_bytes = ?", std::uint64_t{4096});
  reopen();
  EXPECT_EQ(store->pending(kRun).error().code, Code::kDataLoss) << "the file is shorter";
  write("UPDATE pending SET state_bytes = ?", std::uint64_t{1} << 60);
  expect_damaged();
  write("UPDATE residuals SET state_bytes = ?", std::uint64_t{1} << 60);
  reopen();
  EXPECT_EQ(store->open_residual(kRun).error().code, Code::kDataLoss);
}

TEST_F(SiteDamage, AFileOutsideTheFolder) {
  write("UPDATE pending SET p_file = ?", std::string_view("../key.pem"));
  expect_damaged();
}

TEST_F(SiteDamage, WhatWasLeftOutOfNoSubmission) {
  const auto refused = [&](const char* sql, SqlValue value) {
    SCOPED_TRACE(sql);
    write(sql, value);
    reopen();
    EXPECT_EQ(store->open_residual(kRun).error().code, Code::kDataLoss);
    EXPECT_TRUE(files.exists(kOther).value());
  };
  refused("UPDATE residuals SET chunks_file = ?", std::string_view("../key.pem"));
  write("UPDATE residuals SET chunks_file = (SELECT chunks_file FROM pending), chunk_values = ?", std::uint64_t{4});
  refused("UPDATE residuals SET chunk_values = ?", std::uint64_t{0});
  refused("UPDATE residuals SET chunk_values = ?", std::uint64_t{5} << 60);
  write("UPDATE residuals SET chunk_values = ?", std::uint64_t{4});
  refused("UPDATE residuals SET chunk_ends = ?",
          ByteSpan(as_byte_span(std::string_view("\7\0\0\0\0\0\0\0\1\0\0\0\0\0\0\0", 16))));
  refused("UPDATE residuals SET value_count = ?", std::uint64_t{1} << 60);
}

TEST_F(SiteDamage, ChunksBeyondTheEndOfTheirFile) {
  write("UPDATE residuals SET chunks_file = (SELECT chunks_file FROM pending), chunk_values = ?", std::uint64_t{4});
  write("UPDATE residuals SET chunk_ends = ?",
        ByteSpan(as_byte_span(std::string_view("\0\0\0\0\0\1\0\0\0\0\0\0\0\2\0\0", 16))));
  reopen();
  std::vector<float> values(6);
  EXPECT_EQ(store->read_residual(kRun, 0, values).error().code, Code::kDataLoss) << "before memory is reserved";
}

TEST_F(SiteDamage, WhatWasLeftOutByAnUnknownCodec) {
  write("UPDATE residuals SET codec = ?", std::string_view("another"));
  reopen();
  EXPECT_EQ(store->open_residual(kRun).error().code, Code::kInvalidArgument);
  EXPECT_TRUE(store->begin_run(RunId(2), {}, 6).ok());
}

TEST_F(SiteDamage, AResidualOutsideTheFolder) {
  write("UPDATE residuals SET file = ?", std::string_view("../key.pem"));
  reopen();
  EXPECT_EQ(store->residual(kRun).error().code, Code::kDataLoss);
  ASSERT_TRUE(store->begin_run(RunId(9), {}, 6).ok() || store->pending(kRun).ok());
  EXPECT_TRUE(files.exists(kOther).value());
}

}  // namespace
}  // namespace fluvial::store
