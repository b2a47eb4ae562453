// What a counted submission leaves, read from its own files; and its encoded bytes in memory.
#include <algorithm>

#include "core/store/site_store_test_support.h"

namespace fluvial::store {
namespace {

// Wherever a reader begins and ends: each value is that of its chunk.
TEST_F(SiteStoreTest, WhatWasLeftOutIsReadFromPAndItsChunks) {
  const auto leave = [](const std::string& codec, const Fit& fit) -> Result<LeaveChunk> {
    EXPECT_EQ(codec, "topk:ratio=0.5");
    EXPECT_EQ(fit, (Fit{4, 0.5F}));
    return LeaveChunk([](ByteSpan chunk, std::span<float> p) -> Status {
      EXPECT_EQ(p.size(), as_text(chunk) == chunk_text(0) ? 4u : 2u);
      for (float& value : p) value += static_cast<float>(chunk.size());
      return {};
    });
  };
  store.reset();
  store = SiteStore::open(files, kFolder, 0, leave).value();
  PendingStart start = start_of(1);
  start.codec = "topk:ratio=0.5";
  start.fit = {4, 0.5F};
  const std::vector<float> p = {10, 20, 30, 40, 50, 60};
  {
    const std::unique_ptr<PendingWriter> writer = store->begin_pending(start).value();
    ASSERT_TRUE(writer->write_p(0, p).ok());
    for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(writer->write_chunk(i, as_byte_span(chunk_text(i))).ok());
    ASSERT_TRUE(writer->write_trailer(as_byte_span(kTrailer)).ok());
    ASSERT_TRUE(writer->finish(digest_of("update"), 7.5).ok());
  }
  store.reset();
  files.restart(Unsynced::kLost);
  store = SiteStore::open(files, kFolder, 0, leave).value();
  EXPECT_EQ(store->pending(kRun)->value().info().left_norm, 7.5);
  ASSERT_EQ(store->resolve(kRun, RoundId(1), Outcome::kCounted, 7.5)->residual, (ResidualInfo{false, 6, 0, 7.5}));
  store.reset();
  files.restart(Unsynced::kLost);
  store = SiteStore::open(files, kFolder, 0, leave).value();
  const std::vector<float> whole = {19, 29, 39, 49, 60, 70};  // chunks of 9 and of 10 bytes
  const Residual residual = store->open_residual(kRun).value();
  for (std::size_t first = 0; first <= 6; ++first) {
    for (std::size_t count = 0; count <= 6 - first; ++count) {
      std::vector<float> read(count, -1);
      ASSERT_TRUE(residual.read(first, read).ok());
      EXPECT_TRUE(std::ranges::equal(read, std::span(whole).subspan(first, count))) << first << ", " << count;
    }
  }
  std::vector<float> beyond(2);
  EXPECT_EQ(residual.read(5, beyond).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(residual.read(~std::uint64_t{0}, beyond).error().code, Code::kFailedPrecondition);
}

// It is read while the run goes on: what lets go of its files does not have them written again.
TEST_F(SiteStoreTest, AResidualThatIsOpenStaysAsItWas) {
  ASSERT_TRUE(submit(*store, 1, 1.0F).ok() && count(*store, 1, 0.5F).ok());
  const auto write = [&](std::uint64_t round) {
    const std::unique_ptr<PendingWriter> writer = store->begin_pending(start_of(round)).value();
    ASSERT_TRUE(writer->write_p(0, values(8)).ok());
    for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(writer->write_chunk(i, as_byte_span("another")).ok());
    ASSERT_TRUE(writer->write_trailer(as_byte_span(kTrailer)).ok());
    ASSERT_TRUE(writer->finish(digest_of("update")).ok());
  };
  std::optional<Residual> first = store->open_residual(kRun).value();
  write(2);
  ASSERT_TRUE(store->resolve(kRun, RoundId(2), Outcome::kLate).ok());
  write(3);
  EXPECT_EQ(store->files_reused(), 0u);
  std::vector<float> read(6);
  ASSERT_TRUE(first->read(0, read).ok());
  EXPECT_EQ(read, values(0.5F));
  EXPECT_EQ(residual_of(*store), values(8));
  first.reset();
  ASSERT_TRUE(store->resolve(kRun, RoundId(3), Outcome::kLate).ok());
  write(4);
  EXPECT_EQ(store->files_reused(), 2u) << "nobody reads them any more";
}

TEST_F(SiteStoreTest, ASubmissionIsInMemoryAsLongAsSomebodyKeepsItThere) {
  const std::vector<float> p = values(1);
  const std::unique_ptr<PendingWriter> writer = store->begin_pending(start_of(1)).value();
  ASSERT_TRUE(writer->write_p(0, p).ok());
  for (std::uint64_t i = 0; i < 2; ++i) {
    ASSERT_TRUE(writer->keep_chunk(i, SharedBytes::from(Buffer::copy_of(as_byte_span(chunk_text(i))))).ok());
  }
  ASSERT_TRUE(writer->write_trailer(as_byte_span(kTrailer)).ok());
  PendingUpdate update = writer->finish(digest_of("update")).value();
  EXPECT_FALSE(store->pending(kRun)->value().in_memory()) << "of another process, or a later one";
  const std::vector<std::string> names = files.list("/site/tensors").value();
  for (const std::string& name : names) {  // nobody needs the disk to send it
    ASSERT_TRUE(files.open("/site/tensors/" + name, OpenMode::kReadWrite).value()->truncate(0).ok());
  }
  ASSERT_TRUE(update.in_memory());
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(as_text(update.chunk(i)->bytes), chunk_text(i));
  EXPECT_EQ(as_text(update.trailer()->bytes), kTrailer);
  update.forget_memory();
  EXPECT_EQ(update.chunk(0).error().code, Code::kDataLoss);
  EXPECT_EQ(update.trailer().error().code, Code::kDataLoss);
}

// An encoding that is longer than what it encodes is not worth the memory.
TEST_F(SiteStoreTest, ASubmissionIsInMemoryOnlyIfItIsNoLongerThanItsP) {
  const std::vector<float> p = values(1);
  const auto is_kept = [&](std::uint64_t round, std::size_t first_bytes) {
    const std::unique_ptr<PendingWriter> writer = store->begin_pending(start_of(round)).value();
    EXPECT_TRUE(writer->write_p(0, p).ok());
    EXPECT_TRUE(writer->keep_chunk(0, SharedBytes::from(Buffer(first_bytes))).ok());
    EXPECT_TRUE(writer->keep_chunk(1, SharedBytes::from(Buffer(4))).ok());
    EXPECT_TRUE(writer->write_trailer(as_byte_span(kTrailer)).ok());
    const PendingUpdate update = writer->finish(digest_of("update")).value();
    EXPECT_EQ(update.chunk(0)->bytes.size(), first_bytes);
    EXPECT_TRUE(store->resolve(kRun, RoundId(round), Outcome::kRefused).ok());
    return update.in_memory();
  };
  EXPECT_TRUE(is_kept(1, 20));
  EXPECT_FALSE(is_kept(2, 21)) << "25 bytes of 24";
  EXPECT_FALSE(is_kept(3, 30));
}

// ---- the state of a codec

constexpr std::string_view kState = "what the codec keeps";

Result<PendingUpdate> submit_with_state(SiteStore& store, std::uint64_t round, std::string_view state) {
  PendingStart start = start_of(round);
  start.state_bytes = state.size();
  FLUVIAL_ASSIGN(const std::unique_ptr<PendingWriter> writer, store.begin_pending(start));
  FLUVIAL_TRY(writer->write_p(0, values(1)));
  if (!state.empty()) FLUVIAL_TRY(writer->write_state(as_byte_span(state)));
  for (std::uint64_t i = 0; i < 2; ++i) FLUVIAL_TRY(writer->write_chunk(i, as_byte_span(chunk_text(i))));
  FLUVIAL_TRY(writer->write_trailer(as_byte_span(kTrailer)));
  return writer->finish(digest_of("update"));
}

std::string state_of(SiteStore& store) {
  const Residual residual = store.open_residual(kRun).value();
  std::string state(residual.state_bytes(), '?');
  EXPECT_TRUE(residual.read_state(std::as_writable_bytes(std::span(state))).ok());
  EXPECT_EQ(residual.codec(), state.empty() ? "" : "int8");
  return state;
}

TEST_F(SiteStoreTest, AStateIsInForceWithWhatItsSubmissionLeaves) {
  ASSERT_TRUE(submit_with_state(*store, 1, kState).ok());
  EXPECT_EQ(state_of(*store), "") << "nothing is resolved yet";
  ASSERT_TRUE(count(*store, 1, 0.5F).ok());
  store.reset();
  files.restart(Unsynced::kLost);
  reopen();
  EXPECT_EQ(state_of(*store), kState);
  EXPECT_EQ(residual_of(*store), values(0.5F));
  const Residual counted = store->open_residual(kRun).value();
  ASSERT_EQ(counted.counted_chunks(), 2u);
  EXPECT_EQ(counted.chunk_values(), 4u);
  EXPECT_EQ(as_text(counted.counted_chunk(1)->span()), chunk_text(1));

  ASSERT_TRUE(submit_with_state(*store, 2, "another").ok());
  ASSERT_TRUE(store->resolve(kRun, RoundId(2), Outcome::kRefused).ok());
  EXPECT_EQ(state_of(*store), kState);
  ASSERT_TRUE(submit_with_state(*store, 3, "another").ok());
  ASSERT_TRUE(store->resolve(kRun, RoundId(3), Outcome::kLate).ok());
  EXPECT_EQ(state_of(*store), "another");
  EXPECT_EQ(store->open_residual(kRun)->counted_chunks(), 0u);
  ASSERT_TRUE(submit(*store, 4, 1).ok());
  ASSERT_TRUE(store->resolve(kRun, RoundId(4), Outcome::kLate).ok());
  EXPECT_EQ(state_of(*store), "") << "of a codec without one";
}

TEST_F(SiteStoreTest, AStateOfAnUpdateThatWasNeverSentIsInForceAsWell) {
  auto writer = store->begin_residual(kRun).value();
  ASSERT_TRUE(writer->write(0, values(2)).ok());
  ASSERT_TRUE(writer->write_state("int8", as_byte_span(kState)).ok());
  ASSERT_TRUE(store->fold(kRun, RoundId(1), std::move(writer)).ok());
  store.reset();
  files.restart(Unsynced::kLost);
  reopen();
  EXPECT_EQ(state_of(*store), kState);
  EXPECT_EQ(residual_of(*store), values(2));
}

TEST_F(SiteStoreTest, AStateIsAsLongAsItWasAnnouncedAndThereOnce) {
  PendingStart start = start_of(1);
  start.state_bytes = kState.size();
  const std::unique_ptr<PendingWriter> writer = store->begin_pending(start).value();
  EXPECT_EQ(writer->write_state(as_byte_span("short")).error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(writer->write_p(0, values(1)).ok());
  for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(writer->write_chunk(i, as_byte_span(chunk_text(i))).ok());
  ASSERT_TRUE(writer->write_trailer(as_byte_span(kTrailer)).ok());
  EXPECT_EQ(writer->finish(digest_of("update")).error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(writer->write_state(as_byte_span(kState)).ok());
  EXPECT_EQ(writer->write_state(as_byte_span(kState)).error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(writer->finish(digest_of("update")).ok());
}

}  // namespace
}  // namespace fluvial::store
