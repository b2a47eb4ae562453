// Site stores of 0.1, in each of its formats, made from their own tables: today's store holds all of their content.
#include <span>

#include "core/store/site_schema.h"
#include "core/store/site_store_test_support.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

constexpr RunId kWaits{4};
constexpr std::size_t kLastSiteFormat = 5;  // of 0.1; later ones are among the fixtures of tests/upgrade
constexpr std::uint64_t kProbeBytes = 4;

void write_file(FileSystem& files, const std::string& name, std::initializer_list<ByteSpan> parts) {
  auto file = files.open("/site/tensors/" + name, OpenMode::kTruncate).value();
  std::uint64_t at = 0;
  for (const ByteSpan part : parts) {
    ASSERT_TRUE(file->write_at(at, part).ok());
    at += part.size();
  }
  ASSERT_TRUE(file->sync().ok());
}

// A residual and an outcome of one run, and of another run a pending submission of two chunks and an integer.
Status fill(Database& old, std::size_t format) {
  FLUVIAL_TRY(old.run("UPDATE site SET incarnation = 3, submissions = 8"));
  FLUVIAL_TRY(old.run("INSERT INTO residuals VALUES (3, 't-1-1', 6, 2, 1.5)"));
  FLUVIAL_TRY(old.run("INSERT INTO outcomes (run, round, outcome) VALUES (3, 9, 2)"));
  std::vector<std::byte> ends(16);
  store_le(ends.data(), std::uint64_t{5});
  store_le(ends.data() + 8, std::uint64_t{9});
  FLUVIAL_TRY(
      old.run("INSERT INTO pending (run, round, submission, incarnation, weight, codec, base, metrics, value_count, "
              "integer_count,"
              " lossless, digest, p_norm, p_file, chunks_file, chunk_ends, chunk_values)"
              " VALUES (4, 2, 8, 3, 17, 'int8', ?, '{\"loss\":0.25}', 6, 1, 0, ?, 2.5, 't-3-1', 't-3-2', ?, 4)",
              {digest_of("base"), digest_of("update"), ByteSpan(ends)}));
  return format < 3 ? Status() : old.run("UPDATE pending SET trailer_bytes = 8 + 4");
}

TEST(SiteStoreVersions, WhatASiteOfEachEarlierFormatHoldsIsThere) {
  const std::vector<float> residual = values(0.5F);
  const std::vector<float> p = values(2);
  const std::int64_t integers[] = {9};
  const float probe[] = {1};
  for (std::size_t format = 1; format <= kLastSiteFormat; ++format) {
    SCOPED_TRACE("format " + std::to_string(format));
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder(kFolder).ok() && files.make_folder("/site/tensors").ok());
    write_file(files, "t-1-1", {std::as_bytes(std::span(residual))});
    write_file(files, "t-3-1", {std::as_bytes(std::span(p))});
    write_file(files, "t-3-2",
               {as_byte_span("firstlast"), std::as_bytes(std::span(integers)),
                std::as_bytes(std::span(probe)).first(format < 3 ? 0 : kProbeBytes)});
    {
      auto old = Database::open(files, "/site/site.db", std::span(kSiteSteps).first(format), "nobody").value();
      const Status filled = old->transact([&] { return fill(*old, format); });
      ASSERT_TRUE(filled.ok()) << filled.error().to_string();
    }
    auto store = SiteStore::open(files, kFolder, 0, leave_half).value();
    EXPECT_EQ(store->incarnation(), Incarnation(4));
    EXPECT_EQ(residual_of(*store), residual);
    EXPECT_EQ(store->residual(kRun)->age_rounds, 2U);
    EXPECT_EQ(store->last_outcome(kRun).value(), (LastOutcome{RoundId(9), Outcome::kCounted}));
    const PendingUpdate pending = store->pending(kWaits).value().value();
    EXPECT_EQ(pending.info().digest, digest_of("update"));
    EXPECT_EQ(pending.info().submission, 8U);
    EXPECT_EQ(pending.info().has_probe(), format >= 3);
    EXPECT_TRUE(pending.info().start.fit.whole());
    EXPECT_EQ(pending.info().start.digest_kind, DigestKind::kStream);
    EXPECT_EQ(as_text(pending.read_chunk(1)->span()), "last");
    std::int64_t read[] = {0};
    ASSERT_TRUE(pending.read_integers(read).ok());
    EXPECT_EQ(read[0], 9);
    // Late: its p is the residual.
    ASSERT_TRUE(store->resolve(kWaits, RoundId(2), Outcome::kLate).ok());
    std::vector<float> left(6);
    ASSERT_TRUE(store->read_residual(kWaits, 0, left).ok());
    EXPECT_EQ(left, p);
  }
}

// Whoever sent it would announce another digest than the one it has.
TEST(SiteStoreVersions, ADigestOfAKindThatNobodyKnowsIsDamage) {
  MemoryFileSystem files;
  {
    auto store = SiteStore::open(files, kFolder).value();
    ASSERT_TRUE(submit(*store, 1, 1.0F).ok());
  }
  {
    auto damaged = Database::open(files, "/site/site.db", kSiteSteps, "nobody").value();
    ASSERT_TRUE(damaged->transact([&] { return damaged->run("UPDATE pending SET digest_kind = 2"); }).ok());
  }
  const auto store = SiteStore::open(files, kFolder);
  const Error error = store.ok() ? (*store)->pending(kRun).error() : store.error();
  EXPECT_EQ(error.code, Code::kDataLoss) << error.to_string();
}

// The format before: a residual is a file of its own, and a submission does not know what it leaves. Killed at any
// operation of its migration, the store holds both.
TEST(SiteStoreVersions, AResidualThatIsAFileOfItsOwnStaysOne) {
  const std::vector<float> residual = values(0.5F);
  const std::vector<float> p = values(2);
  bool finished = false;
  for (std::uint64_t crash_at = 0; !finished; ++crash_at) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder(kFolder).ok() && files.make_folder("/site/tensors").ok());
    write_file(files, "t-1-1", {std::as_bytes(std::span(residual))});
    write_file(files, "t-3-1", {std::as_bytes(std::span(p))});
    write_file(files, "t-3-2", {as_byte_span("encoded-0encoded-1"), as_byte_span("integer.1.0F")});
    ASSERT_TRUE(files.sync_folder("/site/tensors").ok());
    {
      auto old = Database::open(files, "/site/site.db", std::span(kSiteSteps).first(6), "nobody").value();
      std::vector<std::byte> ends(16);
      store_le(ends.data(), std::uint64_t{9});
      store_le(ends.data() + 8, std::uint64_t{18});
      ASSERT_TRUE(old->transact([&]() -> Status {
                       FLUVIAL_TRY(fill(*old, 6));
                       return old->run("UPDATE pending SET chunk_ends = ?", {ByteSpan(ends)});
                     })
                      .ok());
    }
    files.fail_at(crash_at, Fault::kCrash);
    const bool opened = SiteStore::open(files, kFolder, 0, leave_half).ok();
    finished = opened && !files.crashed();
    files.restart(Unsynced::kTorn, crash_at);
    auto store = SiteStore::open(files, kFolder, 0, leave_half).value();
    EXPECT_EQ(residual_of(*store), residual) << crash_at;
    EXPECT_EQ(store->residual(kRun).value(), (ResidualInfo{false, 6, 2, 1.5})) << crash_at;
    EXPECT_EQ(store->pending(kWaits)->value().info().left_norm, std::nullopt);
    ASSERT_TRUE(store->resolve(kWaits, RoundId(2), Outcome::kCounted, 2.5).ok());
    std::vector<float> left(6);
    ASSERT_TRUE(store->read_residual(kWaits, 0, left).ok());
    EXPECT_EQ(left, values(1)) << crash_at;
    EXPECT_EQ(files.list("/site/tensors")->size(), 3u);
    ASSERT_LT(crash_at, 500u);
  }
}

}  // namespace
}  // namespace fluvial::store
