// The residual that a run leaves unspent, and the run that continues it.
#include "core/store/site_store_test_support.h"

namespace fluvial::store {
namespace {

TEST_F(SiteStoreTest, ARunThatContinuesBeginsWithWhatWasLeft) {
  ASSERT_TRUE(submit(*store, 1, 2.0F).ok());
  ASSERT_TRUE(store->resolve(kRun, RoundId(1), Outcome::kLate).ok());
  const ResidualInfo left = store->residual(kRun).value();
  const auto begin = [&](std::uint64_t run, std::vector<RunId> continues) {
    return store->begin_run(RunId(run), continues, 6).value();
  };
  EXPECT_TRUE(begin(3, {}).empty()) << "what is of this run stays";
  // It was away while run 5 continued run 3; run 8 continues that one.
  const std::vector<Unspent> carried = begin(8, {RunId(5), kRun});
  ASSERT_EQ(carried.size(), 1u);
  EXPECT_EQ(carried[0].run, kRun);
  EXPECT_EQ(carried[0].residual, left);
  EXPECT_TRUE(carried[0].carried_over);
  crash_and_reopen();
  EXPECT_EQ(store->residual(RunId(8)).value(), left);
  std::vector<float> values(6);
  ASSERT_TRUE(store->read_residual(RunId(8), 0, values).ok());
  EXPECT_EQ(values, std::vector<float>(6, 2.0F));
  EXPECT_TRUE(store->residual(kRun)->zero);
  EXPECT_FALSE(store->last_outcome(kRun)->has_value());
  EXPECT_TRUE(begin(8, {RunId(5), kRun}).empty()) << "the same again does nothing";
  EXPECT_EQ(store->residual(RunId(8)).value(), left);

  const std::vector<Unspent> dropped = begin(9, {kRun});
  ASSERT_EQ(dropped.size(), 1u);
  EXPECT_EQ(dropped[0].run, RunId(8));
  EXPECT_FALSE(dropped[0].carried_over) << "run 9 does not continue run 8";
  EXPECT_EQ(tensor_files(), 0u);
}

TEST_F(SiteStoreTest, WhatWasLeftOutOfACountedSubmissionIsHandedOverWithItsFiles) {
  ASSERT_TRUE(submit(*store, 1, 2.0F).ok() && count(*store, 1, 1.0F).ok());
  const ResidualInfo left = store->residual(kRun).value();
  ASSERT_EQ(store->begin_run(RunId(4), std::vector{kRun}, 6)->size(), 1u);
  crash_and_reopen();
  EXPECT_EQ(store->residual(RunId(4)).value(), left);
  std::vector<float> read(6);
  ASSERT_TRUE(store->read_residual(RunId(4), 0, read).ok());
  EXPECT_EQ(read, values(1));
  EXPECT_EQ(tensor_files(), 2u);
  ASSERT_TRUE(store->begin_run(RunId(5), {}, 6).ok());
  EXPECT_EQ(tensor_files(), 0u) << "and forgotten with them";
}

TEST_F(SiteStoreTest, OnlyTheNewestOfThoseItContinuesAndOnlyIfItFits) {
  const auto leave = [&](std::uint64_t run, float fill) {
    std::unique_ptr<ResidualWriter> writer = store->begin_residual(RunId(run)).value();
    ASSERT_TRUE(writer->write(0, values(fill)).ok());
    ASSERT_TRUE(store->fold(RunId(run), RoundId(1), std::move(writer), {}, {"gpu-0"}).ok());
  };
  leave(3, 1);
  leave(5, 2);
  leave(6, 3);
  const std::vector<Unspent> unspent = store->begin_run(RunId(7), std::vector{RunId(5), RunId(3)}, 6).value();
  ASSERT_EQ(unspent.size(), 3u);
  for (const Unspent& one : unspent) EXPECT_EQ(one.carried_over, one.run == RunId(5)) << one.run.value();
  EXPECT_EQ(tensor_files(), 1u);
  EXPECT_TRUE(store->worker_outcomes()->empty());
  const std::vector<Unspent> other = store->begin_run(RunId(8), std::vector{RunId(7)}, 7).value();
  ASSERT_EQ(other.size(), 1u);
  EXPECT_FALSE(other[0].carried_over) << "of another model";
  EXPECT_EQ(tensor_files(), 0u);
}

TEST_F(SiteStoreTest, ACrashWhileARunBeginsLeavesTheResidualInOneOfThem) {
  bool finished = false;
  for (std::uint64_t n = 0; !finished; ++n) {
    MemoryFileSystem disk;
    {
      const auto first = SiteStore::open(disk, kFolder, 0, leave_half).value();
      ASSERT_TRUE(submit(*first, 1, 2.0F).ok());
      ASSERT_TRUE(first->resolve(kRun, RoundId(1), Outcome::kLate).ok());
    }
    disk.fail_at(n, Fault::kCrash);
    bool begun = false;
    if (auto opened = SiteStore::open(disk, kFolder, 0, leave_half); opened.ok()) {
      begun = (*opened)->begin_run(RunId(4), std::vector{kRun}, 6).ok();
      finished = begun && !disk.crashed();
    }
    disk.restart(n % 2 == 0 ? Unsynced::kLost : Unsynced::kTorn, n);
    const auto again = SiteStore::open(disk, kFolder, 0, leave_half).value();
    const bool in_old = !again->residual(kRun)->zero;
    const bool in_new = !again->residual(RunId(4))->zero;
    EXPECT_NE(in_old, in_new) << n;
    if (begun) EXPECT_TRUE(in_new) << n;
    std::vector<float> found(6);
    ASSERT_TRUE(again->read_residual(in_new ? RunId(4) : kRun, 0, found).ok());
    EXPECT_EQ(found, values(2.0F)) << n;
    EXPECT_EQ(disk.list("/site/tensors")->size(), 1u) << n;
    ASSERT_LT(n, 1000u);
  }
}

}  // namespace
}  // namespace fluvial::store
