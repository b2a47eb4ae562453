// Late is next, in the journal: outcomes over several rounds, and marks that make an update count once.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "core/round/fairness.h"
#include "core/store/journal_test_support.h"

namespace fluvial::store {
namespace {

using ::testing::ElementsAre;
using ::testing::IsEmpty;
using ::testing::Pair;

class LateJournal : public JournalOfMembers {
 protected:
  LateJournal() { begin("next", 2); }

  void begin(const std::string& late, std::uint32_t staleness_max, const std::string& mode = "rounds") {
    RunRow row;
    row.plan.name = "slow";
    row.plan.rounds = 100;
    row.plan.mode = mode;
    row.plan.late = late;
    row.plan.staleness_max = staleness_max;
    row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    run_ = journal_->create_run(row).value();
  }
  static round::Contribution entry(std::uint32_t site, std::uint64_t submission, const std::string& update,
                                   std::uint64_t base, std::uint64_t admitted) {
    round::Contribution one{SiteId(site), Epoch(1), 10, digest_of(update), 10, {}};
    one.incarnation = Incarnation(1);
    one.submission = submission;
    one.base = ModelVersion(base);
    one.admitted = ModelVersion(admitted);
    return one;
  }
  void enrol(const std::string& name, const std::string& token = "token") {
    add_token(name + token, name);
    const NodeRow row{NodeId(), Role::kSite, name, "eu", 9, token, at(1), "", {}, {}, ""};
    ASSERT_TRUE(journal_->redeem_token(digest_of(name + token), row, at(2)).ok());
  }
  Status commit(std::uint64_t round, const std::vector<round::Contribution>& entries,
                const std::vector<round::Refusal>& refusals = {}, bool late_is_next = true, std::uint64_t epoch = 1) {
    round::AttemptRecord attempt{run_, RoundId(round), AttemptId(1), Epoch(epoch), {}, 30, {}};
    for (std::uint32_t site = 1; site <= 3; ++site) attempt.participants.push_back({SiteId(site), Epoch(1), 1000});
    FLUVIAL_TRY(journal_->open_attempt(attempt));
    CommitRow row;
    row.record.run = run_;
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    for (const round::Contribution& one : entries) FLUVIAL_TRY(row.record.contributors.add(one));
    row.record.refusals = refusals;
    row.record.late_is_next = late_is_next;
    row.record.model.digest = row.master = digest_of("model");
    return journal_->commit(row);
  }
  Outcome outcome(std::uint64_t round, std::uint32_t site, const std::string& update) {
    return journal_->outcome(run_, RoundId(round), SiteId(site), digest_of(update)).value();
  }
  RunId run_;
};

TEST_F(LateJournal, AnUpdateIsPendingUntilTheLastRoundThatItMayEnter) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kPending);
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1)}).ok());
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kPending);
  ASSERT_TRUE(commit(3, {entry(1, 3, "a3", 2, 2), entry(2, 1, "b1", 0, 2)}).ok());
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kCounted) << "in round 3";
  EXPECT_EQ(outcome(1, 3, "c1"), Outcome::kLate) << "round 3 was the last";
  EXPECT_EQ(outcome(2, 3, "c2"), Outcome::kPending);
  EXPECT_EQ(outcome(4, 2, "b4"), Outcome::kPending) << "open";
  ASSERT_TRUE(journal_->set_run_status(run_, RunStatus::kStopped, "").ok());
  EXPECT_EQ(outcome(2, 3, "c2"), Outcome::kLate) << "no round follows";
}

// A window that nobody comes into asks again at each hard deadline, for days perhaps.
TEST_F(LateJournal, OfAnOpenRoundItKeepsTheLastAttempt) {
  round::AttemptRecord attempt{run_, RoundId(1), AttemptId(1), Epoch(1), {}, 30, {}};
  for (std::uint32_t site = 1; site <= 1000; ++site) attempt.participants.push_back({SiteId(site), Epoch(1), 1000});
  ASSERT_TRUE(journal_->open_attempt(attempt).ok());
  const std::uint64_t before = journal_->size().value().bytes;
  for (std::uint32_t again = 2; again <= 60; ++again) {
    attempt.attempt = AttemptId(again);
    ASSERT_TRUE(journal_->open_attempt(attempt).ok());
  }
  EXPECT_LT(journal_->size().value().bytes, before + 100'000) << "60 rows are over a million bytes";
  EXPECT_EQ(journal_->last_attempt(run_).value()->attempt, AttemptId(60));
}

// The versions at admission are its word, so it cannot get out of it by sending its children elsewhere.
TEST_F(LateJournal, WhoAdmittedAnUpdateStandsBesideIt) {
  for (const char* name : {"a", "b", "c"}) enrol(name);
  const NodeId aggregator(9);
  const auto under = [&](std::uint32_t site, Epoch lease) {
    round::Contribution one = entry(site, 1, "u" + std::to_string(site), 0, 0);
    one.lease = lease;
    return one;
  };
  const Epoch below = journal_->grant(SiteId(1), aggregator).value().epoch;
  const Epoch direct = journal_->grant(SiteId(2), NodeId(0)).value().epoch;
  const Epoch moved = journal_->grant(SiteId(3), aggregator).value().epoch;
  for (const std::uint32_t parent : {0, 10, 0}) ASSERT_TRUE(journal_->grant(SiteId(3), NodeId(parent)).ok());
  ASSERT_TRUE(commit(1, {under(1, below), under(2, direct), under(3, moved)}).ok());
  ASSERT_TRUE(journal_->grant(SiteId(1), NodeId(0)).ok());  // after the commit
  EXPECT_THAT(journal_->commit_of(run_, RoundId(1)).value().parents,
              ElementsAre(Pair(SiteId(1), aggregator), Pair(SiteId(2), NodeId(0)), Pair(SiteId(3), aggregator)));
}

TEST_F(LateJournal, LeasesBeforeAreKnownForAWhile) {
  enrol("a");
  const Epoch first = journal_->grant(SiteId(1), NodeId(9)).value().epoch;
  const auto parents = [&](std::uint64_t round) {
    round::Contribution one = entry(1, round, "u" + std::to_string(round), round - 1, round - 1);
    one.lease = first;
    EXPECT_TRUE(commit(round, {one}).ok());
    return journal_->commit_of(run_, RoundId(round)).value().parents;
  };
  for (std::uint32_t parent = 10; parent < 18; ++parent) ASSERT_TRUE(journal_->grant(SiteId(1), NodeId(parent)).ok());
  EXPECT_THAT(parents(1), ElementsAre(Pair(SiteId(1), NodeId(9)))) << "eight others since";
  ASSERT_TRUE(journal_->grant(SiteId(1), NodeId(18)).ok());
  EXPECT_THAT(parents(2), IsEmpty()) << "they do not grow without end";
}

TEST_F(LateJournal, ALeaseIsKnownAfterItsNodeHasEnrolledAnew) {
  enrol("a");
  round::Contribution one = entry(1, 1, "a1", 0, 0);
  one.lease = journal_->grant(SiteId(1), NodeId(9)).value().epoch;
  enrol("a", "another");
  ASSERT_TRUE(commit(1, {one}).ok());
  EXPECT_THAT(journal_->commit_of(run_, RoundId(1)).value().parents, ElementsAre(Pair(SiteId(1), NodeId(9))));
}

TEST_F(LateJournal, WithoutTheKeyItIsLateWithItsRound) {
  begin("residual", 2);
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}, {}, false).ok());
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kLate);
  EXPECT_TRUE(journal_->shares(run_)->empty());
  EXPECT_TRUE(journal_->marks(run_)->empty());
}

TEST_F(LateJournal, ARefusalIsOfTheUpdateThatItSays) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1)},
                     {{SiteId(2), {Code::kDataLoss, "damaged"}, RoundId(1)}, {SiteId(3), {Code::kStale, "too old"}}})
                  .ok());
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kRefused);
  EXPECT_EQ(outcome(2, 2, "b2"), Outcome::kPending) << "another was refused there";
  EXPECT_EQ(outcome(1, 3, "c1"), Outcome::kPending) << "not for what it holds";
  EXPECT_EQ(journal_->last_commit(run_).value()->record.refusals[0].own, RoundId(1));
}

TEST_F(LateJournal, ARefusalThatSaysNoRoundIsOfTheRoundThatRefused) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1)}, {{SiteId(2), {Code::kDataLoss, "damaged"}}}).ok());
  EXPECT_EQ(outcome(2, 2, "b2"), Outcome::kRefused);
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kLate) << "it is older than what was decided, and counts nowhere";
}

// Whatever its parent says: else it would shut the site out of the rounds to come.
TEST_F(LateJournal, NoRefusalIsOfALaterRoundThanItsOwn) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}, {{SiteId(2), {Code::kDataLoss, "damaged"}, RoundId(40)}}).ok());
  ASSERT_TRUE(commit(2, {entry(2, 2, "b2", 1, 1)}).ok());
  EXPECT_EQ(outcome(2, 2, "b2"), Outcome::kCounted);
}

TEST_F(LateJournal, WhatItsSiteDropsCountsInNoLaterRound) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}, {{SiteId(2), {Code::kDataLoss, "damaged"}}}).ok());
  crash_and_reopen();
  EXPECT_THAT(journal_->marks(run_).value(), ElementsAre(Pair(SiteId(1), RoundId(1)), Pair(SiteId(2), RoundId(1))));
  EXPECT_EQ(commit(2, {entry(2, 1, "b1", 0, 1)}).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kRefused);
}

TEST_F(LateJournal, NorDoesARefusalBringTheMarkDown) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(2, 1, "b1", 1, 1)}, {{SiteId(1), {Code::kDataLoss, "made up"}, RoundId(1)}}).ok());
  ASSERT_TRUE(commit(3, {entry(2, 2, "b2", 2, 2)}, {{SiteId(1), {Code::kDataLoss, "made up"}, RoundId(99)}}).ok());
  EXPECT_EQ(journal_->marks(run_)->at(SiteId(1)), RoundId(3)) << "no update is of a later round than it entered";
  ASSERT_TRUE(commit(4, {entry(2, 3, "b3", 3, 3)}, {{SiteId(1), {Code::kDataLoss, "made up"}, RoundId(2)}}).ok());
  EXPECT_EQ(journal_->marks(run_)->at(SiteId(1)), RoundId(3));
}

TEST_F(LateJournal, NoUpdateIsInTwoCommits) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0), entry(2, 1, "b1", 0, 0)}).ok());
  crash_and_reopen();
  EXPECT_EQ(commit(2, {entry(1, 2, "a2", 1, 1), entry(2, 1, "b1", 0, 1)}).error().code, Code::kFailedPrecondition);
  EXPECT_EQ(journal_->last_commit(run_).value()->record.round, RoundId(1)) << "all or nothing";
  EXPECT_THAT(journal_->marks(run_).value(), ElementsAre(Pair(SiteId(1), RoundId(1)), Pair(SiteId(2), RoundId(1))));
}

// A mark is of the round that the site's signature covers: no number that somebody else may write moves it.
TEST_F(LateJournal, ASitesOwnNumbersShutNobodyOut) {
  round::Contribution inflated = entry(1, ~std::uint64_t{0}, "not its own", 0, 0);
  inflated.incarnation = Incarnation(~std::uint64_t{0});
  ASSERT_TRUE(commit(1, {inflated}).ok());
  EXPECT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1)}).ok());
}

// Its folder was lost or is an older copy, and it made something else for the round that counted it.
TEST_F(LateJournal, AnotherUpdateOfARoundThatIsDecidedIsLateAtOnce) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  EXPECT_EQ(outcome(1, 1, "another"), Outcome::kLate);
}

TEST_F(LateJournal, VersionsAndSharesAreKept) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  round::Contribution slow = entry(2, 1, "b1", 0, 1);
  slow.share = 48;
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1), slow}).ok());
  crash_and_reopen();
  const CommitRow second = journal_->commit_of(run_, RoundId(2)).value();
  const round::Contribution* const old = second.record.contributors.find(SiteId(2));
  ASSERT_NE(old, nullptr);
  EXPECT_EQ(old->base, ModelVersion(0));
  EXPECT_EQ(old->admitted, ModelVersion(1));
  EXPECT_EQ(old->share, 48U);
  EXPECT_EQ(second.record.contributors.find(SiteId(1))->share, round::kWholeFactor);
  EXPECT_THAT(journal_->shares(run_).value(),
              ElementsAre(Pair(SiteId(1), SiteShare{2, 20, 0, 0}), Pair(SiteId(2), SiteShare{1, 10, 1, 1})));
  ASSERT_TRUE(commit(3, {entry(1, 3, "a3", 2, 2)}, {{SiteId(3), {Code::kDataLoss, "damaged"}}}).ok());
  ASSERT_TRUE(journal_->prune_rounds({.newest = 1}).ok());
  ASSERT_TRUE(journal_->set_run_status(run_, RunStatus::kDone, "").ok());
  EXPECT_THAT(journal_->shares(run_).value(),
              ElementsAre(Pair(SiteId(1), SiteShare{3, 30, 0, 0}), Pair(SiteId(2), SiteShare{1, 10, 1, 1})))
      << "also those of pruned rounds, and of a run that is over; what was refused gives nothing";
}

TEST_F(LateJournal, ASiteThatKnowsOfACountedUpdateIsNoProofOfAnOlderCopy) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1), entry(2, 1, "b1", 0, 1)}).ok());
  round::Standing standing;
  standing.history = round::current_of(journal_->lineage().value());
  standing.rounds = {{run_, RoundId(1), true, true, digest_of("b1")}};
  EXPECT_TRUE(journal_->meet(NodeId(2), standing, at(9)).ok()) << "it is in round 2";
  standing.rounds[0].digest = digest_of("unknown");
  EXPECT_FALSE(journal_->meet(NodeId(2), standing, at(9)).ok());
}

TEST_F(LateJournal, NorIsOneThatCountedInARoundThatARestoreHasUndone) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());  // a copy of this is put back; round 2 had counted b1
  ASSERT_TRUE(journal_->begin_history(round::HistoryId(7), Epoch(50), at(9)).ok());
  round::Standing standing;
  standing.history = round::HistoryId(7);
  standing.rounds = {{run_, RoundId(1), true, true, digest_of("b1")}};
  EXPECT_TRUE(journal_->meet(NodeId(2), standing, at(9)).ok());
}

TEST_F(LateJournal, PruningKeepsTheRoundsThatAnUpdateMayStillEnter) {
  for (std::uint64_t round = 1; round <= 6; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}).ok());
  }
  ASSERT_TRUE(journal_->prune_rounds({.newest = 1}).ok());
  EXPECT_EQ(outcome(5, 2, "b5"), Outcome::kPending);
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kLate);
}

// A new term makes the shares of a fair run from the windows before.
TEST_F(LateJournal, PruningKeepsTheWindowsThatRatesAreOver) {
  RunRow row;
  round::set_mode("async", &row.plan);
  row.plan.name = "fair";
  row.plan.rounds = 1000;
  row.plan.async_fairness = "rate";
  row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
  run_ = journal_->create_run(row).value();
  for (std::uint64_t round = 1; round <= round::kRateHistory + 3; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}).ok());
  }
  ASSERT_TRUE(journal_->prune_rounds({2, {}}).ok());
  EXPECT_EQ(journal_->pruned(run_).value(), RoundId(3));
}

TEST_F(LateJournal, WhatALaterRoundRefusedStaysRefusedWhenItsOwnIsPruned) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1)}, {{SiteId(2), {Code::kDataLoss, "damaged"}, RoundId(1)}}).ok());
  for (std::uint64_t round = 3; round <= 7; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}).ok());
  }
  for (std::uint64_t newest = 6; newest >= 3; --newest) {
    ASSERT_TRUE(journal_->prune_rounds({.newest = newest}).ok());
    EXPECT_EQ(journal_->pruned(run_).value(), RoundId(7 - newest));
    EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kRefused) << newest;
    EXPECT_EQ(outcome(2, 2, "b2"), Outcome::kLate) << "late: round 4 was the last that it could enter";
  }
}

TEST_F(LateJournal, WhatALaterRoundCountedStaysCountedWhenItIsPruned) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(1, 2, "a2", 1, 1), entry(2, 1, "b1", 0, 1)}).ok());
  for (std::uint64_t round = 3; round <= 7; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}).ok());
  }
  for (std::uint64_t newest = 6; newest >= 3; --newest) {
    ASSERT_TRUE(journal_->prune_rounds({.newest = newest}).ok());
    EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kCounted) << newest;
    EXPECT_EQ(outcome(2, 2, "b2"), Outcome::kLate);
  }
}

TEST_F(LateJournal, OtherBytesOfTheRoundOfWhatCountedStayLateWhenAllIsPruned) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(commit(2, {entry(2, 1, "b1", 0, 1)}).ok());
  for (std::uint64_t round = 3; round <= 7; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}).ok());
  }
  ASSERT_TRUE(journal_->prune_rounds({.newest = 3}).ok());
  ASSERT_GE(journal_->pruned(run_).value(), RoundId(2));
  EXPECT_EQ(outcome(1, 2, "b1"), Outcome::kCounted);
  EXPECT_EQ(outcome(1, 2, "of a clone"), Outcome::kLate);
}

TEST_F(LateJournal, WithTheLastRoundNothingIsPending) {
  begin("next", 2);
  for (std::uint64_t round = 1; round < 100; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}).ok());
  }
  EXPECT_EQ(outcome(99, 2, "b99"), Outcome::kPending);
  ASSERT_TRUE(commit(100, {entry(1, 100, "a100", 99, 99)}).ok());
  EXPECT_EQ(outcome(99, 2, "b99"), Outcome::kLate) << "no round 101 follows";
  EXPECT_EQ(outcome(100, 2, "b100"), Outcome::kLate);
}

// Its outcome was decided by a round that the restore has undone, and its own round has been pruned since.
TEST_F(LateJournal, NorIsOneWhoseOwnRoundIsPruned) {
  ASSERT_TRUE(commit(1, {entry(1, 1, "a1", 0, 0)}).ok());
  ASSERT_TRUE(journal_->begin_history(round::HistoryId(7), Epoch(50), at(9)).ok());
  for (std::uint64_t round = 2; round <= 6; ++round) {
    ASSERT_TRUE(commit(round, {entry(1, round, "a" + std::to_string(round), round - 1, round - 1)}, {}, true, 50).ok());
  }
  ASSERT_TRUE(journal_->prune_rounds({.newest = 4}).ok());
  ASSERT_GE(journal_->pruned(run_).value(), RoundId(1));
  round::Standing standing;
  standing.history = round::HistoryId(7);
  standing.rounds = {{run_, RoundId(1), true, true, digest_of("b1")}};
  EXPECT_TRUE(journal_->meet(NodeId(2), standing, at(9)).ok());
}

}  // namespace
}  // namespace fluvial::store
