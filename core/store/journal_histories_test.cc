#include <gtest/gtest.h>

#include "core/store/journal.h"
#include "core/store/memory_file_system.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

constexpr round::HistoryId kHistory{77};
constexpr RunId kFirstRun{1};
constexpr SiteId kSite{2};

WallTime at_ms(std::int64_t ms) { return WallTime(std::chrono::milliseconds(ms)); }

class HistoriesTest : public testing::Test {
 protected:
  HistoriesTest() {
    EXPECT_TRUE(files.make_folder("/c").ok());
    reopen();
    enrol("coordinator", Role::kCoordinator);
    enrol("a");
    enrol("b");
  }
  void reopen() {
    journal.reset();
    auto opened = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal = std::move(*opened);
  }
  NodeId enrol(const std::string& name, Role role = Role::kSite) {
    EXPECT_TRUE(journal->add_token(token(name, role)).ok());
    const NodeRow row{NodeId(), role, name, "eu", 9, "serial", at_ms(1), "", {}, {}, ""};
    return journal->redeem_token(digest_of(name), row, at_ms(2)).value().id;
  }
  static TokenRow token(const std::string& name, Role role = Role::kSite) {
    return {name, digest_of(name), role, name, "eu", 9, at_ms(1'000'000'000'000'000), {}};
  }
  RunId start_run() {
    RunRow row;
    row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    row.initial_model = digest_of("initial");
    return journal->create_run(row).value();
  }
  void open_round(std::uint64_t round) {
    const Epoch epoch = journal->next_epoch().value();
    const round::AttemptRecord attempt{kFirstRun, RoundId(round), AttemptId(1), epoch, {{kSite, Epoch(1), 9}}, 30, {}};
    ASSERT_TRUE(journal->open_attempt(attempt).ok());
  }
  void commit(std::uint64_t round) {
    open_round(round);
    CommitRow row;
    row.record.run = kFirstRun;
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    ASSERT_TRUE(row.record.contributors.add({kSite, Epoch(1), 1, update(round), 1, {}}).ok());
    ASSERT_TRUE(journal->commit(row).ok());
  }
  static Digest update(std::uint64_t round) { return digest_of("update " + std::to_string(round)); }
  static round::KnownRound counted(std::uint64_t round, RunId run = kFirstRun) {
    return {run, RoundId(round), true, true, update(round)};
  }
  static round::KnownRound late(std::uint64_t round) { return {kFirstRun, RoundId(round), true, false, update(round)}; }
  static round::KnownRound pending(std::uint64_t round) {
    return {kFirstRun, RoundId(round), false, false, update(round)};
  }
  Result<std::vector<LostRow>> meet(std::vector<round::KnownRound> rounds, round::HistoryId history = {},
                                    Epoch epoch = Epoch(1)) {
    return journal->meet(kSite, {history, epoch, std::move(rounds)}, at_ms(3));
  }
  MemoryFileSystem files;
  std::unique_ptr<CoordinatorJournal> journal;
};

TEST_F(HistoriesTest, ANewHistoryBeginsAboveEveryEpoch) {
  const LeaseRow before = journal->grant(kSite, NodeId(0)).value();
  const LeaseRow other = journal->grant(NodeId(3), NodeId(0)).value();
  start_run();
  commit(1);
  EXPECT_TRUE(journal->lineage().value().empty());
  const round::History history = journal->begin_history(kHistory, Epoch(500), at_ms(10)).value();
  EXPECT_EQ(history, (round::History{kHistory, Epoch(501), kFirstRun, {{kFirstRun, RoundId(1)}}}));
  files.restart(Unsynced::kLost);
  reopen();
  EXPECT_EQ(journal->lineage().value(), round::Lineage{history});
  std::set<Epoch> epochs = {history.began};
  const std::vector<LeaseRow> leases = journal->leases().value();
  for (const LeaseRow& lease : leases) {
    EXPECT_GT(lease.epoch, history.began);
    EXPECT_TRUE(epochs.insert(lease.epoch).second);
  }
  EXPECT_EQ(journal->grant(kSite, NodeId(0)).value().epoch, leases[0].epoch);
  EXPECT_NE(before, other);
  EXPECT_GT(journal->next_epoch().value(), *epochs.rbegin());
}

TEST_F(HistoriesTest, ALaterRestoreOfAnOlderCopyBeginsLater) {
  const round::History first = journal->begin_history(kHistory, Epoch(), at_ms(1'800'000'000'000)).value();
  EXPECT_EQ(first.began, Epoch(1'800'000'000'000));
  const round::History second = journal->begin_history(round::HistoryId(78), Epoch(), at_ms(5)).value();
  EXPECT_GT(second.began, first.began) << "whatever the clock says";
  EXPECT_FALSE(journal->begin_history(kHistory, Epoch(), at_ms(6)).ok()) << "an id twice";
  EXPECT_EQ(journal->lineage().value(), (round::Lineage{first, second}));
}

TEST_F(HistoriesTest, WhatMayHaveBeenGivenMeanwhileIsNotGivenAgain) {
  ASSERT_TRUE(journal->add_token(token("c")).ok());
  TokenRow shared = token("eu-*");
  shared.uses_max = 3;
  ASSERT_TRUE(journal->add_token(shared).ok());
  NodeRow member{NodeId(), Role::kSite, "eu-1", "eu", 9, "serial", at_ms(1), "", {}, {}, ""};
  ASSERT_TRUE(journal->redeem_token(shared.secret_hash, member, at_ms(2)).ok());
  const NodeId before = journal->reserve_node_id(Role::kSite, "d").value();
  ASSERT_TRUE(journal->begin_history(kHistory, Epoch(), at_ms(10)).ok());
  EXPECT_GT(journal->reserve_node_id(Role::kSite, "e").value().value(), before.value() + 1'000);
  const NodeRow row{NodeId(), Role::kSite, "c", "eu", 9, "serial", at_ms(1), "", {}, {}, ""};
  EXPECT_EQ(journal->redeem_token(digest_of("c"), row, at_ms(10)).error().code, Code::kUnauthenticated);
  member.name = "eu-2";
  EXPECT_EQ(journal->redeem_token(shared.secret_hash, member, at_ms(10)).error().code, Code::kUnauthenticated);
  EXPECT_EQ(journal->reserve_node_id(Role::kSite, "a").value(), kSite);
}

TEST_F(HistoriesTest, RunsThatAreOverHaveNoFork) {
  start_run();
  start_run();
  ASSERT_TRUE(journal->set_run_status(RunId(1), RunStatus::kStopped, "").ok());
  ASSERT_TRUE(journal->set_run_status(RunId(2), RunStatus::kPaused, "").ok());
  const round::History history = journal->begin_history(kHistory, Epoch(), at_ms(10)).value();
  EXPECT_EQ(history.last_run, RunId(2));
  EXPECT_EQ(history.forks, (std::vector<round::Fork>{{RunId(2), RoundId(0)}}));
}

TEST_F(HistoriesTest, WhoKnowsNoMoreThanTheJournalIsWelcome) {
  start_run();
  commit(1);
  open_round(2);
  for (const round::KnownRound& known : {counted(1), late(1), pending(1), pending(2)}) {
    EXPECT_TRUE(meet({known}).ok()) << known.round.value();
  }
  ASSERT_TRUE(journal->set_run_status(kFirstRun, RunStatus::kStopped, "").ok());
  EXPECT_TRUE(meet({late(2)}).ok()) << "the run was stopped: what was open is late";
  EXPECT_TRUE(journal->lost().value().empty());
}

TEST_F(HistoriesTest, AJournalThatIsAnOlderCopySaysWhatToDo) {
  start_run();
  commit(1);
  open_round(2);
  round::KnownRound other = counted(1);
  other.digest = digest_of("another");
  for (const round::KnownRound& known : {late(2), counted(2), pending(3), counted(1, RunId(2)), other}) {
    const auto met = meet({counted(1), known});
    ASSERT_FALSE(met.ok()) << known.round.value();
    EXPECT_EQ(met.error().code, Code::kFailedPrecondition);
    EXPECT_NE(met.error().message.find("--restored"), std::string::npos) << met.error().message;
    EXPECT_NE(met.error().message.find("round " + std::to_string(known.round.value())), std::string::npos);
  }
  const auto met = meet({}, {}, Epoch(1'000));
  ASSERT_FALSE(met.ok());
  EXPECT_NE(met.error().message.find("epoch 1000"), std::string::npos) << met.error().message;
  EXPECT_TRUE(journal->lost().value().empty());
}

TEST_F(HistoriesTest, AfterARestoreTheLostRoundsAreNamed) {
  start_run();
  commit(1);
  const round::History history = journal->begin_history(kHistory, Epoch(50), at_ms(10)).value();
  EXPECT_EQ(meet({counted(1)}).value(), std::vector<LostRow>());
  const std::vector<LostRow> lost = meet({counted(3), pending(4)}).value();
  EXPECT_EQ(lost, (std::vector<LostRow>{{kHistory, kSite, counted(3)}, {kHistory, kSite, pending(4)}}));
  EXPECT_EQ(meet({counted(3), pending(4)}).value(), lost) << "as often as it comes";
  files.restart(Unsynced::kLost);
  reopen();
  EXPECT_EQ(journal->lost().value(), lost);
  // In the new history it must know only what the journal holds, or it is refused like any other.
  commit(2);
  EXPECT_TRUE(meet({counted(2)}, kHistory, history.began).ok());
  EXPECT_FALSE(meet({counted(3)}, kHistory, history.began).ok());
  EXPECT_EQ(journal->lost().value(), lost);
}

TEST_F(HistoriesTest, AnEpochThatNobodyGaveIsRefusedAlsoAfterARestore) {
  const round::History history = journal->begin_history(kHistory, Epoch(50), at_ms(10)).value();
  EXPECT_TRUE(meet({}, {}, history.began).ok());
  EXPECT_FALSE(meet({}, {}, Epoch(~std::uint64_t{0})).ok());
  EXPECT_FALSE(meet({}, round::HistoryId(99), Epoch(history.began.value() + 1'000)).ok()) << "a later restore's";
  EXPECT_EQ(journal->next_epoch().value(), history.began.next()) << "a claim moves nothing";
}

TEST_F(HistoriesTest, AMemberThatHasHeardOfALaterEpochSaysWhereToBegin) {
  ASSERT_TRUE(journal->begin_history(kHistory, Epoch(50), at_ms(10)).ok()) << "with a clock that is behind";
  const Epoch heard(1'800'000'000'000);
  const auto refused = meet({}, round::HistoryId(0), heard);
  ASSERT_FALSE(refused.ok());
  EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
  EXPECT_NE(refused.error().message.find("--restored --above 1800000000000"), std::string::npos)
      << refused.error().message;
  const round::History again = journal->begin_history(round::HistoryId(78), heard, at_ms(11)).value();
  EXPECT_TRUE(meet({}, round::HistoryId(0), heard).ok());
  EXPECT_GT(again.began, heard);
}

TEST_F(HistoriesTest, AClaimThatCannotBeIsNotToldToBeginAbove) {
  for (const Epoch claimed : {Epoch(~std::uint64_t{0}), round::kClockEpochMax.next()}) {
    const auto refused = meet({}, {}, claimed);
    ASSERT_FALSE(refused.ok());
    EXPECT_EQ(refused.error().code, Code::kFailedPrecondition);
    EXPECT_EQ(refused.error().message.find("--above"), std::string::npos) << refused.error().message;
    EXPECT_NE(refused.error().message.find(std::to_string(claimed.value())), std::string::npos);
  }
  // An epoch that this journal gave itself is not a member's claim, however great it is.
  ASSERT_TRUE(journal->begin_history(kHistory, round::kClockEpochMax, at_ms(10)).ok());
  const Epoch given = journal->next_epoch().value();
  EXPECT_GT(given, round::kClockEpochMax);
  EXPECT_TRUE(meet({}, kHistory, given).ok());
}

TEST_F(HistoriesTest, WhoClaimsOtherLostRoundsEachTimeDoesNotMakeTheJournalGrow) {
  ASSERT_TRUE(journal->begin_history(kHistory, Epoch(50), at_ms(10)).ok());
  for (std::uint64_t i = 1; i <= 3 * round::kKnownRoundsMax; ++i) {
    ASSERT_TRUE(meet({counted(i, RunId(9))}).ok());
  }
  const std::vector<LostRow> lost = journal->lost().value();
  EXPECT_EQ(lost.size(), round::kKnownRoundsMax);
  EXPECT_TRUE(meet({counted(5 * round::kKnownRoundsMax, RunId(9))}).value().empty());
  EXPECT_EQ(meet({counted(1, RunId(9))})->size(), 1U) << "one of them comes again";
  EXPECT_TRUE(journal->meet(NodeId(3), {{}, Epoch(1), {counted(1, RunId(9))}}, at_ms(3)).ok());
  EXPECT_EQ(journal->lost()->size(), round::kKnownRoundsMax + 1) << "another member's are its own";
}

TEST_F(HistoriesTest, AMemberOfAnotherRestoreOfTheSameCopyIsMet) {
  start_run();
  commit(1);
  ASSERT_TRUE(journal->begin_history(kHistory, Epoch(50), at_ms(10)).ok());
  commit(2);
  const auto lost = meet({counted(2)}, round::HistoryId(99), Epoch(40));
  ASSERT_TRUE(lost.ok());
  EXPECT_EQ(lost->size(), 1U) << "round 2 of its history is another";
}

TEST_F(HistoriesTest, ACrashAtAnyOperationLeavesTheOldHistoryOrTheNewOne) {
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    MemoryFileSystem disk;
    ASSERT_TRUE(disk.make_folder("/c").ok());
    auto opened = CoordinatorJournal::open(disk, kJournalPath).value();
    const NodeRow row{NodeId(), Role::kSite, "a", "eu", 9, "serial", at_ms(1), "", {}, {}, ""};
    ASSERT_TRUE(opened->add_token(token("a")).ok());
    const NodeId node = opened->redeem_token(digest_of("a"), row, at_ms(2)).value().id;
    const Epoch lease = opened->grant(node, NodeId(0)).value().epoch;
    disk.fail_at(crash_at, Fault::kCrash);
    const bool begun = opened->begin_history(kHistory, Epoch(50), at_ms(10)).ok();
    const bool crashed = disk.crashed();
    opened.reset();
    disk.restart(Unsynced::kTorn, crash_at);
    opened = CoordinatorJournal::open(disk, kJournalPath).value();
    const bool there = !opened->lineage().value().empty();
    EXPECT_TRUE(there || !begun) << crash_at;
    EXPECT_EQ(opened->grant(node, NodeId(0)).value().epoch > Epoch(50), there) << crash_at;
    EXPECT_EQ(opened->grant(node, NodeId(0)).value().epoch == lease, !there) << crash_at;
    if (!crashed) {
      EXPECT_TRUE(begun);
      break;
    }
  }
}

}  // namespace
}  // namespace fluvial::store
