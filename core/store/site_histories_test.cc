#include <gtest/gtest.h>

#include "core/digest/sha256.h"
#include "core/store/memory_file_system.h"
#include "core/store/site_store.h"

namespace fluvial::store {
namespace {

constexpr RunId kKnownRun{3};
constexpr std::size_t kKnownValues = 6;

Digest update(std::uint64_t round) { return sha256(as_byte_span("update " + std::to_string(round))); }
std::vector<float> values(float fill) { return std::vector<float>(kKnownValues, fill); }

// A codec that sends half of each value.
Result<LeaveChunk> leave_half(const std::string&, const Fit&) {
  return LeaveChunk([](ByteSpan, std::span<float> p) -> Status {
    for (float& value : p) value /= 2;
    return {};
  });
}

// A restore of a copy in which `kRun` was at round 4.
round::History restored(std::uint64_t id = 7, std::uint64_t began = 100, std::uint64_t fork = 4) {
  return {round::HistoryId(id), Epoch(began), kKnownRun, {{kKnownRun, RoundId(fork)}}};
}

class SiteHistoriesTest : public testing::Test {
 protected:
  SiteHistoriesTest() { reopen(); }
  void reopen() {
    store.reset();
    store = SiteStore::open(files, "/site", 0, leave_half).value();
  }
  void restart() {
    files.restart(Unsynced::kLost);
    reopen();
  }
  Status submit(std::uint64_t round, RunId run = kKnownRun) { return submit(*store, round, run); }
  static Status submit(SiteStore& store, std::uint64_t round, RunId run = kKnownRun, ResidualBounds bounds = {}) {
    PendingStart start{run, RoundId(round), 17, "int8", {}, {}, kKnownValues, 1, 0, false, kKnownValues, {"w"}};
    start.bounds = bounds;
    FLUVIAL_ASSIGN(const std::unique_ptr<PendingWriter> writer, store.begin_pending(start));
    FLUVIAL_TRY(writer->write_p(0, values(static_cast<float>(round))));
    FLUVIAL_TRY(writer->write_chunk(0, as_byte_span("encoded")));
    FLUVIAL_TRY(writer->write_trailer(as_byte_span("1.0F")));
    const auto done = writer->finish(update(round));
    return done.ok() ? Status() : Status(done.error());
  }
  void count(std::uint64_t round, RunId run = kKnownRun) {
    ASSERT_TRUE(submit(round, run).ok());
    ASSERT_TRUE(store->resolve(run, RoundId(round), Outcome::kCounted, 1.5).ok());
  }
  std::vector<float> residual_of(RunId run = kKnownRun) {
    std::vector<float> found(kKnownValues, -1);
    EXPECT_TRUE(store->read_residual(run, 0, found).ok());
    return found;
  }
  std::size_t tensor_files() { return files.list("/site/tensors")->size(); }
  MemoryFileSystem files;
  std::unique_ptr<SiteStore> store;
};

TEST_F(SiteHistoriesTest, ItShowsWhatItKnows) {
  EXPECT_EQ(store->standing().value(), round::Standing());
  ASSERT_TRUE(store->enter({}, Epoch(12)).ok());
  count(4);
  ASSERT_TRUE(submit(5).ok());
  restart();
  const round::Standing expected{
      round::HistoryId(0),
      Epoch(12),
      {{kKnownRun, RoundId(5), false, false, update(5)}, {kKnownRun, RoundId(4), true, true, update(4)}}};
  EXPECT_EQ(store->standing().value(), expected);
  ASSERT_TRUE(store->enter({}, Epoch(9)).ok());
  EXPECT_EQ(store->standing()->epoch, Epoch(12));
  ASSERT_TRUE(store->resolve(kKnownRun, RoundId(5), Outcome::kLate).ok());
  EXPECT_EQ(store->standing()->rounds,
            (std::vector<round::KnownRound>{{kKnownRun, RoundId(5), true, false, update(5)}}));
}

TEST_F(SiteHistoriesTest, ASubmissionOfALostRoundBecomesLate) {
  count(4);
  ASSERT_TRUE(submit(5).ok());
  const std::vector<PutAside> aside = store->enter({restored()}, Epoch(101)).value();
  ASSERT_EQ(aside.size(), 1U);
  EXPECT_EQ(aside[0].late, RoundId(5));
  EXPECT_FALSE(aside[0].undone) << "round 4 is in both histories";
  restart();
  EXPECT_FALSE(store->pending(kKnownRun).value().has_value());
  EXPECT_EQ(residual_of(), values(5));
  EXPECT_EQ(store->residual(kKnownRun)->age_rounds, 1U);
  EXPECT_EQ(tensor_files(), 1U);
  EXPECT_EQ(store->worker_outcomes().value().at(kKnownRun)[0].last.outcome, Outcome::kLate);
  EXPECT_TRUE(submit(5).ok()) << "the round of the same number in the new history";
  EXPECT_TRUE(store->resolve(kKnownRun, RoundId(5), Outcome::kLate).ok());
}

TEST_F(SiteHistoriesTest, WhatIsLateKeepsToItsPlansBoundsAsEver) {
  for (const ResidualBounds& bounds : {ResidualBounds{1, 0}, ResidualBounds{0, 1}, ResidualBounds{1e6, 2}}) {
    MemoryFileSystem disk;
    auto own = SiteStore::open(disk, "/site", 0, leave_half).value();
    ASSERT_TRUE(submit(*own, 4).ok());
    ASSERT_TRUE(own->resolve(kKnownRun, RoundId(4), Outcome::kLate).ok());
    ASSERT_TRUE(submit(*own, 5, kKnownRun, bounds).ok());
    const std::vector<PutAside> aside = own->enter({restored()}, Epoch(101)).value();
    ASSERT_EQ(aside.size(), 1U);
    EXPECT_EQ(aside[0].late, RoundId(5));
    const bool kept = bounds.norm_max > 1;
    EXPECT_EQ(aside[0].dropped.empty(), kept) << aside[0].dropped;
    EXPECT_EQ(own->residual(kKnownRun)->zero, !kept);
    EXPECT_EQ(disk.list("/site/tensors")->size(), kept ? 1U : 0U);
  }
}

TEST_F(SiteHistoriesTest, RoundsResolvedInTheLostHistoryDoNotBlockTheNewOne) {
  count(4);
  count(9);
  EXPECT_EQ(submit(5).error().code, Code::kFailedPrecondition);
  const std::vector<PutAside> aside = store->enter({restored()}, Epoch(101)).value();
  ASSERT_EQ(aside.size(), 1U);
  EXPECT_EQ(aside[0].undone, RoundId(9));
  EXPECT_EQ(residual_of(), values(4.5F)) << "what was left out of an update is in no history";
  EXPECT_FALSE(store->last_outcome(kKnownRun).value().has_value());
  EXPECT_TRUE(store->worker_outcomes()->empty());
  EXPECT_TRUE(submit(5).ok());
}

TEST_F(SiteHistoriesTest, WhatBothHistoriesHoldStays) {
  count(3);
  ASSERT_TRUE(submit(4).ok());
  EXPECT_TRUE(store->enter({restored()}, Epoch(101))->empty());
  EXPECT_EQ((*store->pending(kKnownRun))->info().digest, update(4)) << "the journal has its outcome";
  EXPECT_EQ(store->last_outcome(kKnownRun).value()->round, RoundId(3));
  EXPECT_EQ(store->worker_outcomes().value().at(kKnownRun)[0].last.round, RoundId(3));
}

TEST_F(SiteHistoriesTest, OfARunThatIsLostNothingStays) {
  count(1, RunId(4));
  ASSERT_TRUE(submit(2, RunId(4)).ok());
  count(4);
  const std::vector<PutAside> aside = store->enter({restored()}, Epoch(101)).value();
  ASSERT_EQ(aside.size(), 1U);
  EXPECT_EQ(aside[0].run, RunId(4));
  EXPECT_TRUE(aside[0].run_lost);
  EXPECT_GT(aside[0].residual.norm, 0);
  EXPECT_EQ(residual_of(RunId(4)), values(0)) << "the new history's run 4 is another";
  EXPECT_FALSE(store->pending(RunId(4)).value().has_value());
  EXPECT_EQ(tensor_files(), 2U) << "p and the chunks of the other run's last update";
  restart();
  EXPECT_EQ(tensor_files(), 2U);
}

TEST_F(SiteHistoriesTest, ThereIsNoWayBackToAnOlderHistory) {
  ASSERT_TRUE(store->enter({restored()}, Epoch(120)).ok());
  count(5);
  for (const round::Lineage& other : {round::Lineage(), round::Lineage{restored(8, 110)}}) {
    const auto entered = store->enter(other, Epoch(130));
    ASSERT_FALSE(entered.ok());
    EXPECT_EQ(entered.error().code, Code::kFailedPrecondition);
    EXPECT_NE(entered.error().message.find("--above 120"), std::string::npos) << entered.error().message;
  }
  EXPECT_EQ(store->enter({round::History{}}, Epoch(130)).error().code, Code::kInvalidArgument);
  EXPECT_EQ(store->lineage().value(), round::Lineage{restored()});
  EXPECT_EQ(store->last_outcome(kKnownRun).value()->round, RoundId(5));
  // A later restore of the same copy.
  ASSERT_TRUE(store->enter({restored(8, 121)}, Epoch(122)).ok());
  EXPECT_FALSE(store->last_outcome(kKnownRun).value().has_value());
}

TEST_F(SiteHistoriesTest, ALateUpdateOfALostRoundGoesIntoTheResidualAlone) {
  count(9);
  ASSERT_TRUE(store->enter({restored()}, Epoch(101)).ok());
  auto p = store->begin_residual(kKnownRun).value();
  ASSERT_TRUE(p->write(0, values(8)).ok());
  ASSERT_TRUE(store->fold(kKnownRun, RoundId(10), std::move(p), {}, {"w"}, /*lost=*/true).ok());
  restart();
  EXPECT_EQ(residual_of(), values(8));
  EXPECT_TRUE(submit(5).ok());
}

TEST_F(SiteHistoriesTest, ACrashAtAnyOperationLeavesTheOldHistoryOrTheNewOne) {
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
    for (std::uint64_t crash_at = 0;; ++crash_at) {
      MemoryFileSystem disk;
      auto opened = SiteStore::open(disk, "/site", 0, leave_half).value();
      ASSERT_TRUE(submit(*opened, 4).ok());
      ASSERT_TRUE(opened->resolve(kKnownRun, RoundId(4), Outcome::kLate).ok());
      ASSERT_TRUE(submit(*opened, 5).ok());
      disk.fail_at(crash_at, Fault::kCrash);
      const bool entered = opened->enter({restored()}, Epoch(101)).ok();
      const bool crashed = disk.crashed();
      opened.reset();
      disk.restart(unsynced, crash_at);
      opened = SiteStore::open(disk, "/site", 0, leave_half).value();
      const bool there = !opened->lineage().value().empty();
      EXPECT_TRUE(there || !entered);
      EXPECT_EQ(opened->pending(kKnownRun).value().has_value(), !there);
      std::vector<float> residual(kKnownValues);
      ASSERT_TRUE(opened->read_residual(kKnownRun, 0, residual).ok());
      EXPECT_EQ(residual, values(there ? 5 : 4));
      ASSERT_TRUE(opened->enter({restored()}, Epoch(101)).ok());
      EXPECT_FALSE(opened->pending(kKnownRun).value().has_value());
      ASSERT_TRUE(opened->read_residual(kKnownRun, 0, residual).ok());
      EXPECT_EQ(residual, values(5));
      if (!crashed) {
        EXPECT_TRUE(entered);
        break;
      }
    }
  }
}

}  // namespace
}  // namespace fluvial::store
