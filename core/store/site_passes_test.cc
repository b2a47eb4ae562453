// A submission with several passes: what is durable of each, which of them a crash or an older opening may bring back,
// and what is left by each outcome.
#include <gtest/gtest.h>

#include "core/store/site_store_test_support.h"

namespace fluvial::store {
namespace {

constexpr float kTrained = 3, kLeft = 0.25F;

round::MadeFrom from(std::string_view mean) { return {1, digest_of(mean)}; }

PassStart pass_of(std::uint64_t round, std::string_view mean, std::uint32_t attempt, std::uint64_t epoch = 5) {
  return {kRun, RoundId(round), from(mean), Epoch(epoch), AttemptId(attempt), 5, 1, DigestKind::kTree};
}

Status submit_first(SiteStore& store, std::uint64_t round, float fill = kTrained) {
  PendingStart start = start_of(round);
  start.passes = 2;
  start.sent_values = 4;
  start.schema = R"([{"name":"w","dtype":"F32","shape":[3,2]}])";
  FLUVIAL_ASSIGN(const std::unique_ptr<PendingWriter> writer, store.begin_pending(start));
  FLUVIAL_TRY(writer->write_p(0, values(fill)));
  for (std::uint64_t i = 0; i < 2; ++i) FLUVIAL_TRY(writer->write_chunk(i, as_byte_span(chunk_text(i))));
  FLUVIAL_TRY(writer->write_trailer(as_byte_span(kTrailer)));
  const auto done = writer->finish(digest_of("first"));
  return done.ok() ? Status() : Status(done.error());
}

Result<PendingUpdate> submit_second(SiteStore& store, const PassStart& start, float left = kLeft) {
  FLUVIAL_ASSIGN(const std::unique_ptr<PendingWriter> writer, store.begin_pass(start));
  FLUVIAL_TRY(writer->keep_chunk(0, SharedBytes::from(Buffer::copy_of(ByteSpan(start.from.mean).first(8)))));
  FLUVIAL_TRY(writer->write_p(0, std::span<const float>(values(left)).first(2)));
  FLUVIAL_TRY(writer->write_p(2, std::span<const float>(values(left)).first(4)));
  FLUVIAL_TRY(writer->write_trailer(as_byte_span(kTrailer)));
  return writer->finish(digest_of("second of " + to_hex(start.from.mean)));
}
Digest second_of(std::string_view mean) { return digest_of("second of " + to_hex(digest_of(mean))); }

class SitePasses : public SiteStoreTest {
 protected:
  std::optional<Digest> second() {
    const auto pass = store->pending_pass(kRun).value();
    return pass ? std::optional(pass->info().digest) : std::nullopt;
  }
};

TEST_F(SitePasses, EachIsDurableBeforeTheNextAndHasANumberOfItsOwn) {
  ASSERT_TRUE(submit_first(*store, 1).ok());
  crash_and_reopen();
  const PendingInfo first = store->pending(kRun).value()->info();
  EXPECT_EQ(first.start.passes, 2u);
  EXPECT_EQ(first.start.sent_values, 4u);
  EXPECT_NE(first.start.schema.find("[3,2]"), std::string::npos);
  EXPECT_FALSE(second());
  const auto made = submit_second(*store, pass_of(1, "P", 1));
  ASSERT_TRUE(made.ok()) << made.error().to_string();
  EXPECT_TRUE(made->in_memory());
  EXPECT_GT(made->info().submission, first.submission);
  crash_and_reopen();
  const auto kept = store->pending_pass(kRun).value();
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->info().start.from, from("P"));
  EXPECT_EQ(kept->info().start.sent_values, 5u);
  EXPECT_EQ(kept->info().start.weight, first.start.weight);
  EXPECT_EQ(kept->info().start.digest_kind, DigestKind::kTree);
  EXPECT_EQ(kept->info().submission, made->info().submission);
  EXPECT_EQ(kept->info().digest, second_of("P"));
  EXPECT_TRUE(std::ranges::equal(kept->chunk(0)->bytes, ByteSpan(from("P").mean).first(8)));
  EXPECT_EQ(as_text(kept->trailer()->bytes), kTrailer);
  EXPECT_EQ(store->pending(kRun).value()->info().digest, digest_of("first")) << "it may be asked for again";
}

TEST_F(SitePasses, WhatEachOutcomeLeaves) {
  const auto begun = [&](std::uint64_t round, bool both) {
    ASSERT_TRUE(submit_first(*store, round).ok());
    if (both) ASSERT_TRUE(submit_second(*store, pass_of(round, "P", 1)).ok());
    crash_and_reopen();
  };
  begun(1, true);
  EXPECT_DOUBLE_EQ(store->resolve(kRun, RoundId(1), Outcome::kCounted)->residual.norm, std::sqrt(6.0) * kLeft);
  EXPECT_EQ(residual_of(*store), values(kLeft));
  EXPECT_EQ(store->standing()->rounds.at(0).digest, second_of("P")) << "by which a journal knows it";
  begun(2, true);
  ASSERT_TRUE(store->resolve(kRun, RoundId(2), Outcome::kRefused).ok());
  EXPECT_EQ(residual_of(*store), values(kLeft)) << "as it was";
  begun(3, true);
  ASSERT_TRUE(store->resolve(kRun, RoundId(3), Outcome::kLate).ok());
  EXPECT_EQ(residual_of(*store), values(kTrained));
  begun(4, false);
  ASSERT_TRUE(store->resolve(kRun, RoundId(4), Outcome::kLate).ok());
  EXPECT_EQ(residual_of(*store), values(kTrained)) << "it dropped out between the two";
  crash_and_reopen();
  EXPECT_EQ(residual_of(*store), values(kTrained));
  EXPECT_EQ(tensor_files(), 1u);
  begun(5, true);
  ASSERT_TRUE(store->resolve(kRun, RoundId(5), Outcome::kCounted).ok()) << "told twice, it happens once";
  ASSERT_TRUE(store->resolve(kRun, RoundId(5), Outcome::kCounted).ok());
  EXPECT_FALSE(second());
}

TEST_F(SitePasses, ACountedOneLeavesNothingWhereNothingIsLeft) {
  ASSERT_TRUE(submit_first(*store, 1).ok());
  ASSERT_TRUE(submit_second(*store, pass_of(1, "P", 1), 0).ok());
  EXPECT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kCounted)->residual.zero);
  crash_and_reopen();
  EXPECT_EQ(tensor_files(), 0u);
}

TEST_F(SitePasses, WithoutItsLastOneItCannotCount) {
  ASSERT_TRUE(submit_first(*store, 1).ok());
  EXPECT_EQ(store->resolve(kRun, RoundId(1), Outcome::kCounted).error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(store->pending(kRun).value().has_value()) << "nothing has changed";
}

TEST_F(SitePasses, ALaterAttemptsMeanTakesThePlaceOfTheOneBefore) {
  ASSERT_TRUE(submit_first(*store, 1).ok());
  ASSERT_TRUE(submit_second(*store, pass_of(1, "P", 1)).ok());
  const std::size_t files_before = tensor_files();
  ASSERT_TRUE(submit_second(*store, pass_of(1, "P'", 2), 2 * kLeft).ok());
  EXPECT_EQ(tensor_files(), files_before);
  EXPECT_EQ(second(), second_of("P'"));
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kCounted).ok());
  EXPECT_EQ(residual_of(*store), values(2 * kLeft)) << "what it left of the mean that counted";
}

// What a later attempt's mean has replaced may have counted by now.
TEST_F(SitePasses, AnOpeningThatIsPlayedAgainBringsNothingBack) {
  ASSERT_TRUE(submit_first(*store, 1).ok());
  ASSERT_TRUE(submit_second(*store, pass_of(1, "P'", 2)).ok());
  crash_and_reopen();
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 1)).error().code, Code::kStale);
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 9, 4)).error().code, Code::kStale) << "of an earlier term";
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 2)).error().code, Code::kStale) << "no attempt has two means";
  EXPECT_TRUE(store->begin_pass(pass_of(1, "P", 1, 6)).ok()) << "after a restart of the coordinator";
  EXPECT_EQ(second(), second_of("P'")) << "what was not finished changed nothing";
}

// It may be in the root's sum by then.
TEST_F(SitePasses, WhatWasMadeForAnAttemptIsNotMadeAgain) {
  ASSERT_TRUE(submit_first(*store, 1).ok());
  ASSERT_TRUE(submit_second(*store, pass_of(1, "P", 1)).ok());
  const auto made = store->pending_pass(kRun);
  ASSERT_TRUE(made.ok() && made->has_value());
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 1)).error().code, Code::kAlreadyExists);
  EXPECT_EQ(submit_second(*store, pass_of(1, "P", 1), 2 * kLeft).error().code, Code::kAlreadyExists);
  crash_and_reopen();
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 1)).error().code, Code::kAlreadyExists);
  const auto then = store->pending_pass(kRun);
  ASSERT_TRUE(then.ok() && then->has_value());
  EXPECT_EQ((*then)->info().submission, (*made)->info().submission);
  EXPECT_TRUE(store->begin_pass(pass_of(1, "P", 2)).ok()) << "in the next attempt it could not count before";
}

TEST_F(SitePasses, OneFollowsTheOther) {
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 1)).error().code, Code::kFailedPrecondition) << "no submission";
  ASSERT_TRUE(submit(*store, 1, kTrained).ok());
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 1)).error().code, Code::kFailedPrecondition) << "its codec has one pass";
  ASSERT_TRUE(count(*store, 1, 1).ok());
  ASSERT_TRUE(submit_first(*store, 2).ok());
  EXPECT_EQ(store->begin_pass(pass_of(1, "P", 1)).error().code, Code::kFailedPrecondition) << "of a round before";
  PassStart third = pass_of(2, "P", 1);
  third.from.pass = 2;
  EXPECT_EQ(store->begin_pass(third).error().code, Code::kFailedPrecondition);
}

// The submission and its passes are of a round that the other history does not hold.
TEST_F(SitePasses, AnotherHistoryLeavesAllOfWhatWasTrained) {
  ASSERT_TRUE(submit_first(*store, 5).ok());
  ASSERT_TRUE(submit_second(*store, pass_of(5, "P", 1)).ok());
  EXPECT_EQ(store->standing()->rounds.at(0).digest, second_of("P")) << "as it would count";
  const round::History restored{round::HistoryId(7), Epoch(100), kRun, {{kRun, RoundId(4)}}};
  const auto aside = store->enter({restored}, Epoch(101));
  ASSERT_TRUE(aside.ok()) << aside.error().to_string();
  ASSERT_EQ(aside->size(), 1u);
  EXPECT_EQ(aside->at(0).late, RoundId(5));
  EXPECT_EQ(residual_of(*store), values(kTrained));
  EXPECT_FALSE(second());
  crash_and_reopen();
  EXPECT_EQ(tensor_files(), 1u);
}

// Two attempts of a round that counts, with a crash at each operation of the disk; then on from what is there.
TEST_F(SitePasses, WhateverCrashesItCountsOnceAndLeavesWhatItLeft) {
  store.reset();
  const auto fresh = files.copy();
  for (std::uint64_t n = 0;; ++n) {
    store.reset();
    files.replace(*fresh);
    reopen();
    const auto live = [&]() -> Status {
      FLUVIAL_ASSIGN(const std::optional<LastOutcome> last, store->last_outcome(kRun));
      if (last) return {};
      FLUVIAL_ASSIGN(const std::optional<PendingUpdate> first, store->pending(kRun));
      if (!first) FLUVIAL_TRY(submit_first(*store, 1));
      FLUVIAL_ASSIGN(std::optional<PendingUpdate> made, store->pending_pass(kRun));
      if (!made) {
        FLUVIAL_ASSIGN(made, submit_second(*store, pass_of(1, "P", 1)));
      }
      if (made->info().digest != second_of("P'")) {
        FLUVIAL_ASSIGN(made, submit_second(*store, pass_of(1, "P'", 2), 2 * kLeft));
      }
      const auto carried = store->resolve(kRun, RoundId(1), Outcome::kCounted);
      return carried.ok() ? Status() : Status(carried.error());
    };
    files.fail_at(n, Fault::kCrash);
    static_cast<void>(live());
    const bool crashed = files.crashed();
    files.clear_fault();
    if (crashed) {
      store.reset();
      files.restart(Unsynced::kTorn, n);
      reopen();
      const auto pending = store->pending(kRun).value();
      if (second()) ASSERT_TRUE(pending.has_value()) << n;
      ASSERT_TRUE(live().ok()) << "after a crash at operation " << n;
    }
    EXPECT_EQ(residual_of(*store), values(2 * kLeft)) << n;
    crash_and_reopen();
    EXPECT_EQ(tensor_files(), 1u) << n;
    if (!crashed) break;
  }
}

}  // namespace
}  // namespace fluvial::store
