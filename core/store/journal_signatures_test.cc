// What sites and coordinator signed of a round.
#include <gtest/gtest.h>

#include "core/base/testing.h"
#include "core/digest/sha256.h"
#include "core/store/journal.h"
#include "core/store/memory_file_system.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

class JournalSignatures : public testing::Test {
 protected:
  JournalSignatures() {
    EXPECT_TRUE(files_.make_folder("/c").ok());
    reopen();
    RunRow row;
    row.plan.name = "digits";
    row.plan.models_kept = 1;
    row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    EXPECT_TRUE(journal_->create_run(row).ok());
  }
  void reopen() {
    journal_.reset();
    journal_ = CoordinatorJournal::open(files_, kJournalPath).value();
  }
  static round::Contribution signed_by(std::uint32_t site) {
    round::Contribution entry{SiteId(site), Epoch(1), 10, sha256({}), 10, {}, Incarnation(site), site + 7};
    entry.signature.emplace().fill(static_cast<std::byte>(site));
    return entry;
  }
  // Site 1 signs, and site 2 is of a version that does not; site 3's key is not known.
  CommitRow commit_of(std::uint64_t round) const {
    CommitRow row;
    row.record.run = RunId(1);
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    round::Contribution bare = signed_by(2);
    bare.signature.reset();
    EXPECT_TRUE(row.record.contributors.add(signed_by(1)).ok());
    EXPECT_TRUE(row.record.contributors.add(bare).ok());
    EXPECT_TRUE(row.record.contributors.add(signed_by(3)).ok());
    row.keys[SiteId(1)] = {std::byte{'k'}, std::byte{'e'}, std::byte{'y'}};
    row.order.emplace().statement = "what was committed";
    row.order->signature.fill(std::byte{9});
    return row;
  }
  void commit(const CommitRow& row) {
    round::AttemptRecord attempt{RunId(1), row.record.round, AttemptId(1), journal_->next_epoch().value(), {}, 30, {}};
    for (std::uint32_t site = 1; site <= 3; ++site) attempt.participants.push_back({SiteId(site), Epoch(1), 10});
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
    ASSERT_TRUE(journal_->commit(row).ok());
  }

  MemoryFileSystem files_;
  std::unique_ptr<CoordinatorJournal> journal_;
};

TEST_F(JournalSignatures, StandWithTheirCommit) {
  commit(commit_of(1));
  files_.restart(Unsynced::kLost);
  reopen();
  const CommitRow read = journal_->commit_of(RunId(1), RoundId(1)).value();
  EXPECT_EQ(read.order, commit_of(1).order);
  EXPECT_EQ(read.keys, commit_of(1).keys);
  EXPECT_EQ(read.weight, 30u);
  const round::Contribution& signed_one = *read.record.contributors.find(SiteId(1));
  EXPECT_EQ(signed_one.signature, signed_by(1).signature);
  EXPECT_EQ(signed_one.incarnation, Incarnation(1));
  EXPECT_EQ(signed_one.submission, 8u);
  EXPECT_FALSE(read.record.contributors.find(SiteId(2))->signature);
  EXPECT_FALSE(read.record.contributors.find(SiteId(3))->signature) << "by a key that nobody knows it proves nothing";
}

TEST_F(JournalSignatures, WhoHasSignedIsKnownForEver) {
  EXPECT_TRUE(journal_->signers()->empty());
  for (std::uint64_t round = 1; round <= 3; ++round) commit(commit_of(round));
  EXPECT_EQ(*journal_->signers(), std::set{SiteId(1)});
  while (journal_->prune_rounds({.newest = 1}).value() > 0) {
  }
  EXPECT_EQ(journal_->pruned(RunId(1)).value(), RoundId(2));
  EXPECT_FALSE(journal_->commit_of(RunId(1), RoundId(1)).ok());
  EXPECT_TRUE(journal_->commit_of(RunId(1), RoundId(3))->order);
  reopen();
  EXPECT_EQ(*journal_->signers(), std::set{SiteId(1)});
}

}  // namespace
}  // namespace fluvial::store
