#include <algorithm>
#include <cmath>
#include <cstring>
#include <functional>

#include "core/store/site_schema.h"
#include "core/store/site_store_test_support.h"
#include "core/store/sqlite.h"

namespace fluvial::store {
namespace {

TEST_F(SiteStoreTest, EachOpenIsANewIncarnation) {
  EXPECT_EQ(store->incarnation(), Incarnation(1));
  EXPECT_EQ(SiteStore::open(files, kFolder, 0, leave_half).error().code, Code::kFailedPrecondition);
  crash_and_reopen();
  EXPECT_EQ(store->incarnation(), Incarnation(2));
}

TEST_F(SiteStoreTest, ASubmissionIsThereAfterACrash) {
  ASSERT_TRUE(submit(*store, 4, 2.0F).ok());
  crash_and_reopen();
  const std::optional<PendingUpdate> pending = store->pending(kRun).value();
  ASSERT_TRUE(pending.has_value());
  const PendingInfo& info = pending->info();
  EXPECT_EQ(info.start.round, RoundId(4));
  EXPECT_EQ(info.start.weight, 17u);
  EXPECT_EQ(info.start.codec, "int8");
  EXPECT_EQ(info.start.metrics.at("loss"), 1.5);
  EXPECT_EQ(info.start.base, digest_of("base"));
  EXPECT_EQ(info.start.chunk_count, 2u);
  EXPECT_EQ(info.start.chunk_values, 4u);
  EXPECT_EQ(info.incarnation, Incarnation(1));
  EXPECT_EQ(info.submission, 1u);
  EXPECT_EQ(info.digest, digest_of("update"));
  EXPECT_DOUBLE_EQ(info.p_norm, std::sqrt(24.0));
  for (std::uint64_t i = 0; i < 2; ++i) EXPECT_EQ(as_text(pending->read_chunk(i)->span()), chunk_text(i));
  EXPECT_EQ(as_text(pending->read_trailer()->span()), kTrailer);
  EXPECT_TRUE(info.has_probe());
  std::vector<float> p(3);
  ASSERT_TRUE(pending->read_p(3, p).ok());
  EXPECT_EQ(p, std::vector<float>(3, 2.0F));
  EXPECT_EQ(pending->read_p(4, p).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(store->all_pending()->size(), 1u);
}

// Whether the transaction whose fsync failed is on the disk, nobody knows.
TEST(SiteStoreFaults, WhatARecordMayNameStaysWhenTheCommitFails) {
  int doubtful = 0;
  for (std::uint64_t n = 0;; ++n) {
    MemoryFileSystem files;
    auto store = SiteStore::open(files, kFolder, 0, leave_half).value();
    files.fail_at(n, Fault::kIo);
    const bool submitted = submit(*store, 1, 2).ok();
    files.fail_at(0, Fault::kCrash);  // it ends without closing anything
    store.reset();
    files.restart(Unsynced::kKept);
    auto again = SiteStore::open(files, kFolder, 0, leave_half);
    ASSERT_TRUE(again.ok()) << again.error().to_string() << " after a fault at operation " << n;
    const Result<std::optional<PendingUpdate>> pending = (*again)->pending(kRun);
    ASSERT_TRUE(pending.ok()) << pending.error().to_string() << " after a fault at operation " << n;
    if (submitted) break;
    if (!*pending) continue;
    ++doubtful;
    std::vector<float> p(6);
    ASSERT_TRUE((*pending)->read_p(0, p).ok());
    EXPECT_EQ(p, values(2));
  }
  EXPECT_GT(doubtful, 0);
}

// The submission was written before updates brought a probe: it is sent as it is, and settled like any other.
TEST(SiteStoreVersions, ASubmissionOfAnEarlierVersionIsNotLost) {
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder(kFolder).ok() && files.make_folder("/site/tensors").ok());
    const std::int64_t integers[] = {1, -2, 3};
    const std::vector<float> p = values(2);
    {
      auto old = Database::open(files, "/site/site.db", std::span(kSiteSteps).first(2), "nobody").value();
      auto file = files.open("/site/tensors/t-1-1", OpenMode::kTruncate).value();
      ASSERT_TRUE(file->write_at(0, std::as_bytes(std::span(p))).ok());
      ASSERT_TRUE(file->write_at(24, std::as_bytes(std::span(integers))).ok());
      ASSERT_TRUE(file->sync().ok() && files.sync_folder("/site/tensors").ok());
      Buffer ends(16);
      store_le<std::uint64_t>(ends.data(), 12);
      store_le<std::uint64_t>(ends.data() + 8, 24);
      ASSERT_TRUE(old->transact([&]() -> Status {
                       return old->run(
                           "INSERT INTO pending VALUES (?, 4, 9, 1, 17, 'fp32', ?, '{}', 6, 3, 1, ?, 4.9, 't-1-1', "
                           "'t-1-1', ?, 4, 'gpu-0')",
                           {kRun, digest_of("base"), digest_of("update"), ByteSpan(ends.span())});
                     })
                      .ok());
    }
    files.fail_at(crash_at, Fault::kCrash);
    const bool opened = SiteStore::open(files, kFolder, 0, leave_half).ok();
    const bool crashed = files.crashed();
    files.restart(Unsynced::kTorn, crash_at);
    auto store = SiteStore::open(files, kFolder, 0, leave_half);
    ASSERT_TRUE(store.ok()) << store.error().to_string() << " after a crash at operation " << crash_at;
    const std::optional<PendingUpdate> pending = (*store)->pending(kRun).value();
    ASSERT_TRUE(pending.has_value());
    EXPECT_FALSE(pending->info().has_probe());
    EXPECT_EQ(pending->info().digest, digest_of("update"));
    EXPECT_TRUE(std::ranges::equal(pending->read_trailer()->span(), std::as_bytes(std::span(integers))));
    EXPECT_EQ((*store)->resolve(kRun, RoundId(4), Outcome::kLate)->residual.norm, 4.9);
    EXPECT_EQ(residual_of(**store), p);
    if (!crashed) {
      EXPECT_TRUE(opened);
      break;
    }
  }
}

// The version before the histories: its content is kept, and it shows no digest that it does not have.
TEST(SiteStoreVersions, AnOutcomeOfAnEarlierVersionIsShownWithoutItsDigest) {
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder(kFolder).ok() && files.make_folder("/site/tensors").ok());
    {
      auto old = Database::open(files, "/site/site.db", std::span(kSiteSteps).first(4), "nobody").value();
      ASSERT_TRUE(old->transact([&] {
                       return old->run("INSERT INTO outcomes VALUES (?, 4, ?)",
                                       {kRun, static_cast<int>(Outcome::kCounted)});
                     })
                      .ok());
    }
    files.fail_at(crash_at, Fault::kCrash);
    const bool opened = SiteStore::open(files, kFolder, 0, leave_half).ok();
    const bool crashed = files.crashed();
    files.restart(Unsynced::kTorn, crash_at);
    auto store = SiteStore::open(files, kFolder, 0, leave_half);
    ASSERT_TRUE(store.ok()) << store.error().to_string() << " after a crash at operation " << crash_at;
    EXPECT_EQ((*store)->last_outcome(kRun).value(), (LastOutcome{RoundId(4), Outcome::kCounted}));
    EXPECT_EQ((*store)->standing().value(),
              (round::Standing{round::HistoryId(0), Epoch(0), {{kRun, RoundId(4), true, false, {}}}}));
    const round::History restored{round::HistoryId(7), Epoch(100), kRun, {{kRun, RoundId(3)}}};
    EXPECT_EQ((*store)->enter({restored}, Epoch(101))->at(0).undone, RoundId(4));
    if (!crashed) {
      EXPECT_TRUE(opened);
      break;
    }
  }
}

TEST_F(SiteStoreTest, NothingNewerBeforeAnOutcome) {
  ASSERT_TRUE(submit(*store, 1, 1.0F).ok());
  EXPECT_EQ(store->begin_pending(start_of(2)).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(store->begin_run(RunId(4), std::vector{kRun}, 6).error().code, Code::kFailedPrecondition);
  ASSERT_TRUE(count(*store, 1, 0.5F).ok());
  EXPECT_EQ(store->begin_pending(start_of(1)).error().code, Code::kFailedPrecondition);
  EXPECT_TRUE(submit(*store, 2, 1.0F).ok());
}

TEST_F(SiteStoreTest, Counted) {
  EXPECT_EQ(residual_of(*store), values(0));
  ASSERT_TRUE(submit(*store, 1, 1.0F).ok());
  const ResidualInfo info = count(*store, 1, 0.5F).value().residual;
  EXPECT_FALSE(info.zero);
  EXPECT_EQ(info.age_rounds, 0u);
  EXPECT_DOUBLE_EQ(info.norm, std::sqrt(1.5));
  EXPECT_EQ(tensor_files(), 2u) << "its p and its chunks: nothing is written";
  EXPECT_FALSE(store->pending(kRun)->has_value());
  crash_and_reopen();
  EXPECT_EQ(residual_of(*store), values(0.5F));
  EXPECT_EQ(store->last_outcome(kRun).value(), (LastOutcome{RoundId(1), Outcome::kCounted}));
  std::vector<float> beyond(2);
  EXPECT_EQ(store->read_residual(kRun, 5, beyond).error().code, Code::kFailedPrecondition);
}

TEST_F(SiteStoreTest, LateMakesPTheResidualAndAges) {
  ASSERT_TRUE(submit(*store, 1, 1.0F).ok());
  EXPECT_EQ(store->resolve(kRun, RoundId(1), Outcome::kLate)->residual.age_rounds, 1u);
  ASSERT_TRUE(submit(*store, 2, 3.0F).ok());
  const ResidualInfo info = store->resolve(kRun, RoundId(2), Outcome::kLate).value().residual;
  EXPECT_EQ(info.age_rounds, 2u);
  EXPECT_DOUBLE_EQ(info.norm, std::sqrt(54.0));
  EXPECT_EQ(tensor_files(), 1u);
  crash_and_reopen();
  EXPECT_EQ(residual_of(*store), values(3.0F));
  EXPECT_EQ(store->residual(kRun).value(), info);
}

TEST_F(SiteStoreTest, BeyondItsBoundsAResidualIsDroppedWithTheOutcome) {
  PendingStart start = start_of(1);
  start.bounds = {.norm_max = 3};
  const auto submit_bounded = [&](std::uint64_t round, float fill) {
    start.round = RoundId(round);
    const std::unique_ptr<PendingWriter> writer = store->begin_pending(start).value();
    ASSERT_TRUE(writer->write_p(0, values(fill)).ok());
    for (std::uint64_t i = 0; i < 2; ++i) ASSERT_TRUE(writer->write_chunk(i, as_byte_span(chunk_text(i))).ok());
    ASSERT_TRUE(writer->write_trailer(as_byte_span(kTrailer)).ok());
    ASSERT_TRUE(writer->finish(digest_of("update")).ok());
  };
  submit_bounded(1, 1);
  EXPECT_EQ(store->resolve(kRun, RoundId(1), Outcome::kLate)->dropped, "");
  submit_bounded(2, 2);
  crash_and_reopen();
  EXPECT_EQ(store->pending(kRun)->value().info().start.bounds, start.bounds);
  const Carried dropped = store->resolve(kRun, RoundId(2), Outcome::kLate).value();
  EXPECT_TRUE(dropped.residual.zero);
  EXPECT_NE(dropped.dropped.find("residual_norm_max"), std::string::npos) << dropped.dropped;
  EXPECT_EQ(tensor_files(), 0u);
  submit_bounded(3, 2);
  EXPECT_NE(count(*store, 3, 2)->dropped, "") << "what a counted one leaves as well";
  EXPECT_EQ(tensor_files(), 0u);
  std::unique_ptr<ResidualWriter> late = store->begin_residual(kRun).value();
  ASSERT_TRUE(late->write(0, values(2)).ok());
  EXPECT_NE(store->fold(kRun, RoundId(4), std::move(late), start.bounds)->dropped, "");
  EXPECT_EQ(store->last_outcome(kRun).value(), (LastOutcome{RoundId(4), Outcome::kLate}));
  EXPECT_EQ(tensor_files(), 0u);
}

TEST_F(SiteStoreTest, RefusedKeepsTheResidual) {
  ASSERT_TRUE(submit(*store, 1, 1.0F).ok());
  ASSERT_TRUE(count(*store, 1, 0.5F).ok());
  ASSERT_TRUE(submit(*store, 2, 9.0F).ok());
  EXPECT_EQ(store->resolve(kRun, RoundId(2), Outcome::kRefused)->residual.age_rounds, 1u);
  EXPECT_EQ(residual_of(*store), values(0.5F));
  EXPECT_EQ(tensor_files(), 2u);
}

TEST_F(SiteStoreTest, IncarnationsOfALaterEnrolmentAreAboveAllOfThoseBefore) {
  const auto reopen_as = [&](std::uint64_t enrolled_before) {
    store.reset();
    store = SiteStore::open(files, kFolder, enrolled_before, leave_half).value();
    return store->incarnation().value();
  };
  EXPECT_EQ(reopen_as(0), 2u);
  EXPECT_EQ(reopen_as(1), (std::uint64_t{1} << 32) + 1);
  EXPECT_EQ(reopen_as(1), (std::uint64_t{1} << 32) + 2);
  EXPECT_EQ(reopen_as(0), (std::uint64_t{1} << 32) + 3) << "never back";
  EXPECT_EQ(reopen_as(3), (std::uint64_t{3} << 32) + 1);
}

TEST_F(SiteStoreTest, ResolvingIsIdempotentByRound) {
  ASSERT_TRUE(submit(*store, 5, 1.0F).ok());
  EXPECT_EQ(store->resolve(kRun, RoundId(6), Outcome::kLate).error().code, Code::kFailedPrecondition);
  const ResidualInfo late = store->resolve(kRun, RoundId(5), Outcome::kLate).value().residual;
  EXPECT_EQ(store->resolve(kRun, RoundId(5), Outcome::kLate).value().residual, late);
  EXPECT_EQ(store->resolve(kRun, RoundId(4), Outcome::kCounted).value().residual, late);
  EXPECT_EQ(store->resolve(kRun, RoundId(5), Outcome::kCounted).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(count(*store, 5, 0.1F).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(tensor_files(), 1u);  // the writer that was not needed left nothing
}

TEST_F(SiteStoreTest, RemembersWhatBecameOfEachWorkersLastResult) {
  const auto submit_of = [&](std::uint64_t round, std::vector<std::string> workers) {
    PendingStart start = start_of(round, true);
    start.integer_count = 0;
    start.workers = std::move(workers);
    const std::unique_ptr<PendingWriter> writer = store->begin_pending(start).value();
    const std::vector<float> p = values(1);
    for (std::uint64_t i = 0; i < 2; ++i) {
      ASSERT_TRUE(writer->write_chunk(i, std::as_bytes(std::span(p)).first(12)).ok());
    }
    ASSERT_TRUE(writer->write_trailer(as_byte_span("1.0F")).ok());
    ASSERT_TRUE(writer->finish(digest_of("update")).ok());
  };
  submit_of(1, {"gpu-0", "gpu-1"});
  crash_and_reopen();
  EXPECT_TRUE(store->worker_outcomes()->empty()) << "none yet";
  EXPECT_EQ(store->pending(kRun)->value().info().start.workers, (std::vector<std::string>{"gpu-0", "gpu-1"}));
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kCounted).ok());
  submit_of(2, {"gpu-1"});
  ASSERT_TRUE(store->resolve(kRun, RoundId(2), Outcome::kRefused).ok());
  std::unique_ptr<ResidualWriter> late = store->begin_residual(kRun).value();
  ASSERT_TRUE(late->write(0, values(2)).ok());
  ASSERT_TRUE(store->fold(kRun, RoundId(3), std::move(late), {}, {"gpu-2"}).ok());
  crash_and_reopen();
  const std::map<RunId, std::vector<WorkerOutcome>> expected = {{kRun,
                                                                 {{"gpu-0", {RoundId(1), Outcome::kCounted}},
                                                                  {"gpu-1", {RoundId(2), Outcome::kRefused}},
                                                                  {"gpu-2", {RoundId(3), Outcome::kLate}}}}};
  EXPECT_EQ(store->worker_outcomes().value(), expected);

  for (std::uint64_t round = 4; round < 4 + kWorkerOutcomesMax; ++round) {
    submit_of(round, {"worker-" + std::to_string(round)});
    ASSERT_TRUE(store->resolve(kRun, RoundId(round), Outcome::kCounted).ok());
  }
  EXPECT_EQ(store->worker_outcomes()->at(kRun).size(), kWorkerOutcomesMax) << "the latest are kept";
  EXPECT_EQ(store->worker_outcomes()->at(kRun)[0].worker, "worker-10");
  ASSERT_TRUE(store->begin_run(RunId(4), {}, 6).ok());
  EXPECT_TRUE(store->worker_outcomes()->empty());
}

TEST_F(SiteStoreTest, LosslessIsStoredOnce) {
  ASSERT_TRUE(submit(*store, 1, 2.0F, true).ok());
  EXPECT_EQ(tensor_files(), 1u);
  crash_and_reopen();
  const std::optional<PendingUpdate> pending = store->pending(kRun).value();
  std::vector<float> p(6);
  ASSERT_TRUE(pending->read_p(0, p).ok());
  EXPECT_EQ(p, values(2.0F));
  EXPECT_EQ(pending->chunk_size_bytes(1), 12u);
  EXPECT_DOUBLE_EQ(pending->info().p_norm, std::sqrt(24.0));
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kLate).ok());
  EXPECT_EQ(residual_of(*store), values(2.0F));
  ASSERT_TRUE(submit(*store, 2, 4.0F, true).ok());
  EXPECT_TRUE(store->resolve(kRun, RoundId(2), Outcome::kCounted)->residual.zero);
  EXPECT_EQ(tensor_files(), 0u);
}

TEST_F(SiteStoreTest, WritersRefuseGapsAndUnfinishedSubmissions) {
  const auto writer = store->begin_pending(start_of(1)).value();
  EXPECT_FALSE(writer->write_p(1, values(0)).ok());
  EXPECT_FALSE(writer->write_p(0, std::vector<float>(7)).ok());
  EXPECT_FALSE(writer->write_chunk(1, {}).ok());
  EXPECT_FALSE(writer->write_trailer(as_byte_span(kTrailer)).ok()) << "before the chunks";
  EXPECT_EQ(writer->finish({}).error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(store->pending(kRun)->has_value());
}

TEST_F(SiteStoreTest, AnUnfinishedSubmissionLeavesNothing) {
  {
    const auto writer = store->begin_pending(start_of(1)).value();
  }
  EXPECT_EQ(tensor_files(), 0u);
  const auto writer = store->begin_pending(start_of(1)).value();
  ASSERT_TRUE(writer->write_p(0, values(1)).ok());
  files.restart(Unsynced::kKept);  // killed in the middle: the files are there, no record is
  EXPECT_EQ(tensor_files(), 2u);
  auto again = SiteStore::open(files, kFolder, 0, leave_half).value();
  EXPECT_EQ(tensor_files(), 0u);
}

// A round counted, one late, one refused, with a crash at every operation. After it the folder is in one of the states
// that the sequence passes through, not before what was reported, and every file that a record names is whole.
TEST_F(SiteStoreTest, ACrashAtAnyOperationLeavesOldOrNew) {
  const auto transitions = [](SiteStore& s, int& done) {
    const auto step = [&](bool ok) { return ok ? ++done > 0 : false; };
    return step(submit(s, 1, 1.0F).ok()) && step(count(s, 1, 0.5F).ok()) && step(submit(s, 2, 2.0F).ok()) &&
           step(s.resolve(kRun, RoundId(2), Outcome::kLate).ok()) && step(submit(s, 3, 3.0F).ok()) &&
           step(s.resolve(kRun, RoundId(3), Outcome::kRefused).ok());
  };
  // {residual, round of the pending submission or 0} after each step.
  const std::pair<float, std::uint64_t> states[] = {{0, 0}, {0, 1}, {0.5F, 0}, {0.5F, 2}, {2, 0}, {2, 3}, {2, 0}};
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
    bool finished = false;
    for (std::uint64_t n = 0; !finished; ++n) {
      MemoryFileSystem disk;
      {
        ASSERT_TRUE(SiteStore::open(disk, kFolder, 0, leave_half).ok());
      }
      int done = 0;
      disk.fail_at(n, Fault::kCrash);
      {
        const Result<std::unique_ptr<SiteStore>> opened = SiteStore::open(disk, kFolder, 0, leave_half);
        if (opened.ok()) finished = transitions(**opened, done);
        disk.restart(unsynced, n + 1);
      }
      Result<std::unique_ptr<SiteStore>> again = SiteStore::open(disk, kFolder, 0, leave_half);
      ASSERT_TRUE(again.ok()) << n << ": " << again.error().message;
      EXPECT_GE((*again)->incarnation(), Incarnation(2));
      const std::vector<float> residual = residual_of(**again);
      const std::optional<PendingUpdate> pending = (*again)->pending(kRun).value();
      const std::uint64_t round = pending ? pending->info().start.round.value() : 0;
      bool known = false;
      for (int i = done; i <= std::min(done + 1, 6); ++i) {
        known = known || (residual == values(states[i].first) && round == states[i].second);
      }
      EXPECT_TRUE(known) << "operation " << n << " after " << done << " steps: residual " << residual[0]
                         << ", pending round " << round;
      if (pending) {
        EXPECT_EQ(as_text(pending->read_chunk(1)->span()), chunk_text(1)) << n;
        std::vector<float> p(6);
        ASSERT_TRUE(pending->read_p(0, p).ok());
        EXPECT_EQ(p, values(static_cast<float>(round))) << n;
      }
      const std::size_t left = residual == values(0.5F) ? 2 : 1;  // what was counted left p and chunks, what was late p
      const std::size_t expected_files = (pending ? 2u : 0u) + ((*again)->residual(kRun)->zero ? 0u : left);
      EXPECT_EQ(disk.list("/site/tensors")->size(), expected_files) << n;
      ASSERT_LT(n, 3000u);
    }
  }
}

TEST(SiteStoreAfterAKilledStart, WhatTheNextAgentHoldsSurvivesAPowerCut) {
  bool finished = false;
  for (std::uint64_t n = 0; !finished; ++n) {
    MemoryFileSystem disk;
    disk.fail_at(n, Fault::kCrash);
    finished = SiteStore::open(disk, kFolder, 0, leave_half).ok();
    disk.restart(Unsynced::kKept);
    {
      const auto next = SiteStore::open(disk, kFolder, 0, leave_half).value();
      ASSERT_TRUE(submit(*next, 1, 1.0F).ok());
    }
    disk.restart(Unsynced::kLost);
    const auto last = SiteStore::open(disk, kFolder, 0, leave_half).value();
    ASSERT_TRUE(last->pending(kRun)->has_value()) << "operation " << n;
    ASSERT_LT(n, 500u);
  }
}

// Whichever operation meets the full disk: an unrecorded submission leaves no file, however often it is tried again.
TEST(SiteStoreOnAFullDisk, WhatWasNotRecordedLeavesNoFile) {
  const auto play = [](bool submitted_before, const std::function<bool(SiteStore&)>& change) {
    for (std::uint64_t n = 0; n < 500; ++n) {
      MemoryFileSystem disk;
      const auto store = SiteStore::open(disk, kFolder, 0, leave_half).value();
      if (submitted_before) ASSERT_TRUE(submit(*store, 1, 1.0F).ok());
      const auto count_files = [&] { return disk.list(std::string(kFolder) + "/tensors")->size(); };
      const std::size_t before = count_files();
      disk.fail_at(n, Fault::kNoSpace);
      if (change(*store)) return;
      if (!store->fault()) EXPECT_EQ(count_files(), before) << "operation " << n;
    }
    FAIL() << "never done";
  };
  play(false, [](SiteStore& store) { return submit(store, 1, 1.0F).ok(); });
  play(true, [](SiteStore& store) { return count(store, 1, 0.5F).ok(); });
  play(false, [](SiteStore& store) {
    auto writer = store.begin_residual(kRun);
    if (!writer.ok() || !(*writer)->write(0, values(2.0F)).ok()) return false;
    return store.fold(kRun, RoundId(1), std::move(*writer)).ok();
  });
}

TEST_F(SiteStoreTest, AfterAFailedCommitItAsksToBeOpenedAnew) {
  bool seen = false;
  for (std::uint64_t n = 0; n < 200; ++n) {
    files.fail_at(n, Fault::kIo);
    const bool sent = submit(*store, n + 1, 1).ok();
    files.clear_fault();
    if (sent) break;
    const bool faulty = store->fault().has_value();
    EXPECT_EQ(faulty, !submit(*store, n + 1, 1).ok()) << "an error before the commit passes; one at the commit stays";
    seen = seen || faulty;
    reopen();
    EXPECT_FALSE(store->fault());
    EXPECT_TRUE(store->resolve(kRun, RoundId(n + 1), Outcome::kLate).ok() || faulty) << "it is there, or it is not";
  }
  EXPECT_TRUE(seen);
}

TEST_F(SiteStoreTest, AFullDiskIsAnErrorAndNoMore) {
  for (std::uint64_t n = 0;; ++n) {
    files.fail_at(n, Fault::kShortWrite);
    const Result<PendingUpdate> update = submit(*store, 1, 1.0F);
    files.clear_fault();
    if (update.ok()) break;
    const bool of_a_sync = update.error().code == Code::kUnavailable;
    EXPECT_TRUE(of_a_sync || update.error().code == Code::kResourceExhausted) << update.error().message;
    const bool in_doubt = store->fault().has_value();  // the record's own fsync
    EXPECT_TRUE(of_a_sync || !in_doubt);
    reopen();
    if (in_doubt) break;
    EXPECT_FALSE(store->pending(kRun)->has_value());
    ASSERT_LT(n, 100u);
  }
}

TEST_F(SiteStoreTest, SubmissionNumbersGoOnAfterARestart) {
  const Result<PendingUpdate> first = submit(*store, 1, 1);
  ASSERT_TRUE(first.ok());
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kRefused).ok());
  crash_and_reopen();
  const Result<PendingUpdate> second = submit(*store, 2, 1);
  ASSERT_TRUE(second.ok());
  EXPECT_GT(second->info().submission, first->info().submission);
}

}  // namespace
}  // namespace fluvial::store
