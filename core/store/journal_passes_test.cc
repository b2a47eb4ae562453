// Rounds with several passes, in the journal.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/store/journal_copy.h"
#include "core/store/journal_test_support.h"

namespace fluvial::store {
namespace {

class PassesJournal : public JournalOfMembers {
 protected:
  PassesJournal() {
    RunRow row;
    row.plan.name = "thin";
    row.plan.rounds = 100;
    row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    run_ = journal_->create_run(row).value();
  }
  static round::ContributorSet set_of(std::initializer_list<std::uint32_t> sites, const std::string& pass,
                                      const round::MadeFrom& from) {
    round::ContributorSet set;
    for (const std::uint32_t site : sites) {
      round::Contribution one{SiteId(site), Epoch(1), 10 + site, digest_of(pass + std::to_string(site)), 5, {}};
      one.from = from;
      EXPECT_TRUE(set.add(one).ok());
    }
    return set;
  }
  CommitRow row_of(std::uint64_t round, std::initializer_list<std::uint32_t> first,
                   std::initializer_list<std::uint32_t> last) {
    const round::VectorRef mean{digest_of("P" + std::to_string(round)), 64};
    CommitRow row;
    row.record.run = run_;
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    row.record.passes = {{set_of(first, "p", {}), mean}};
    row.record.contributors = set_of(last, "q", {1, mean.digest});
    row.record.codec_state = round::VectorRef{digest_of("Q" + std::to_string(round)), 96};
    row.record.model.digest = row.master = digest_of("model");
    return row;
  }
  Status commit(const CommitRow& row) {
    round::AttemptRecord attempt{run_, row.record.round, AttemptId(1), journal_->next_epoch().value(), {}, 30, {}};
    for (std::uint32_t site = 1; site <= 3; ++site) attempt.participants.push_back({SiteId(site), Epoch(1), 1000});
    FLUVIAL_TRY(journal_->open_attempt(attempt));
    epoch_ = attempt.epoch;
    return journal_->commit(row);
  }

  Epoch epoch_;  // of the last attempt
  RunId run_;
};

TEST_F(PassesJournal, ACommitHasThePassesThatMadeItAndTheState) {
  const CommitRow row = row_of(1, {1, 2, 3}, {1, 3});
  ASSERT_TRUE(commit(row).ok());
  crash_and_reopen();
  const auto kept = journal_->last_commit(run_).value();
  ASSERT_TRUE(kept.has_value());
  EXPECT_EQ(kept->record.passes, row.record.passes);
  EXPECT_EQ(kept->record.contributors, row.record.contributors) << "with the mean that they are from";
  EXPECT_EQ(kept->record.codec_state, row.record.codec_state);
  EXPECT_EQ(kept->record.epoch, epoch_);
}

TEST_F(PassesJournal, ACommitOfOnePassHasNone) {
  CommitRow row = row_of(1, {}, {1, 3});
  row.record.passes.clear();
  row.record.contributors = set_of({1, 3}, "q", {});
  row.record.codec_state.reset();
  ASSERT_TRUE(commit(row).ok());
  const auto kept = journal_->last_commit(run_).value();
  EXPECT_TRUE(kept->record.passes.empty());
  EXPECT_FALSE(kept->record.codec_state.has_value());
  EXPECT_EQ(kept->record.contributors, row.record.contributors);
}

TEST_F(PassesJournal, NobodyCountsWhoIsNotInThePassBefore) {
  EXPECT_EQ(commit(row_of(1, {1, 2}, {1, 3})).error().code, Code::kFailedPrecondition);
  EXPECT_FALSE(journal_->last_commit(run_).value().has_value()) << "nothing of it is there";
}

// The name of a contribution is that of its last pass.
TEST_F(PassesJournal, AnOutcomeIsOfTheLastPass) {
  ASSERT_TRUE(commit(row_of(1, {1, 2, 3}, {1, 3})).ok());
  const auto outcome = [&](std::uint32_t site, const std::string& update) {
    return journal_->outcome(run_, RoundId(1), SiteId(site), digest_of(update)).value();
  };
  EXPECT_EQ(outcome(1, "q1"), Outcome::kCounted);
  EXPECT_EQ(outcome(2, "p2"), Outcome::kLate) << "it dropped out between the two";
  EXPECT_EQ(outcome(1, "q of another attempt"), Outcome::kLate);
}

TEST_F(PassesJournal, WhatIsPrunedGoesWithItsRound) {
  for (std::uint64_t round = 1; round <= 6; ++round) ASSERT_TRUE(commit(row_of(round, {1, 2, 3}, {1, 3})).ok());
  while (journal_->prune_rounds({.newest = 2}).value() > 0) {
  }
  crash_and_reopen();
  EXPECT_EQ(journal_->commit_of(run_, RoundId(2)).error().code, Code::kNotFound);
  EXPECT_EQ(journal_->commit_of(run_, RoundId(5))->record.passes.size(), 1u);
  EXPECT_EQ(journal_->last_commit(run_).value()->record.codec_state->digest, digest_of("Q6"));
}

TEST_F(PassesJournal, ARunIsBegunWithTheStateThatItGoesOnFrom) {
  EXPECT_FALSE(journal_->run(run_)->codec_state.has_value());
  RunRow row = journal_->run(run_).value();
  row.id = RunId(0);
  row.continues = run_;
  row.codec_state = round::VectorRef{digest_of("Q6"), 96};
  row.id = journal_->create_run(row).value();
  crash_and_reopen();
  EXPECT_EQ(journal_->run(row.id).value(), row);
  EXPECT_EQ(journal_->runs().value().at(1), row);
  EXPECT_FALSE(journal_->runs().value().at(0).codec_state.has_value());
  ASSERT_TRUE(journal_->copy_to("/c/copy").ok());
  const JournalContent content = read_journal_copy(files_, "/c/copy").value();
  EXPECT_EQ(content.runs.at(0).optimizer, "");
  EXPECT_EQ(content.runs.at(1).optimizer, "run-2/round-0.optimizer.safetensors") << "a backup takes it along";
}

}  // namespace
}  // namespace fluvial::store
