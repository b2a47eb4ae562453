#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <tuple>

#include "core/store/journal.h"
#include "core/store/journal_schema.h"
#include "core/store/memory_file_system.h"
#include "core/store/sqlite.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

constexpr std::uint32_t kSites = 5;

Digest update_of(RunId run, std::uint64_t round, std::uint32_t site) {
  return digest_of(std::to_string(run.value()) + "/" + std::to_string(round) + "/" + std::to_string(site));
}

// What the root does with a site's update.
enum class Fate { kAbsent, kCounted, kLate, kInvalid, kDeclined };

class Retention : public testing::Test {
 protected:
  Retention() { reopen(); }
  void reopen() {
    journal.reset();
    ASSERT_TRUE(files.make_folder("/c").ok());
    auto opened = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal = std::move(*opened);
  }
  RunId start_run(std::uint64_t models_kept = 1) {
    RunRow row;
    row.plan.name = "digits";
    row.plan.models_kept = models_kept;
    row.schema = round::Schema::make({{"w", round::DType::kF32, {3}}}).value();
    row.initial_model = digest_of("initial");
    return journal->create_run(row).value();
  }
  static round::AttemptRecord attempt_of(RunId run, std::uint64_t round, Epoch epoch) {
    round::AttemptRecord row{run, RoundId(round), AttemptId(1), epoch, {}, 30, {}};
    for (std::uint32_t site = 1; site <= kSites; ++site) row.participants.push_back({SiteId(site), Epoch(1), 9});
    return row;
  }
  static CommitRow commit_of(RunId run, std::uint64_t round, const std::map<std::uint32_t, Fate>& fates) {
    CommitRow row;
    row.record.run = run;
    row.record.round = RoundId(round);
    row.record.attempt = AttemptId(1);
    row.participants_count = kSites;
    row.committed_at = at(static_cast<std::int64_t>(round));
    for (const auto& [site, fate] : fates) {
      const Digest update = update_of(run, round, site);
      if (fate == Fate::kCounted) {
        EXPECT_TRUE(row.record.contributors.add({SiteId(site), Epoch(1), 1, update, 1, {{"loss", 0.5}}}).ok());
      }
      if (fate == Fate::kInvalid) row.record.refusals.push_back({SiteId(site), {Code::kInvalidArgument, "too long"}});
      if (fate == Fate::kDeclined) row.record.refusals.push_back({SiteId(site), {Code::kUnavailable, "no worker"}});
      if (fate == Fate::kLate) row.late.push_back({SiteId(site), "training since 03:12 UTC"});
    }
    return row;
  }
  void commit(RunId run, std::uint64_t round, const std::map<std::uint32_t, Fate>& fates) {
    ASSERT_TRUE(journal->open_attempt(attempt_of(run, round, journal->next_epoch().value())).ok());
    ASSERT_TRUE(journal->commit(commit_of(run, round, fates)).ok());
  }
  void commit_rounds(RunId run, std::uint64_t last) {
    for (std::uint64_t round = 1; round <= last; ++round) commit(run, round, {{1, Fate::kCounted}});
  }
  std::uint64_t prune(const KeptRounds& kept) {
    std::uint64_t all = 0;
    for (;;) {
      const Result<std::uint64_t> rounds = journal->prune_rounds(kept);
      EXPECT_TRUE(rounds.ok()) << rounds.error().message;
      if (!rounds.ok() || *rounds == 0) return all;
      all += *rounds;
    }
  }
  std::vector<std::uint64_t> rounds_of(RunId run) {
    std::vector<std::uint64_t> rounds;
    const std::vector<CommitRow> commits = journal->commits(run, RoundId(1), 1000).value();
    for (const CommitRow& row : commits) rounds.push_back(row.record.round.value());
    return rounds;
  }
  Outcome outcome(RunId run, std::uint64_t round, std::uint32_t site) {
    return journal->outcome(run, RoundId(round), SiteId(site), update_of(run, round, site)).value();
  }

  MemoryFileSystem files;
  std::unique_ptr<CoordinatorJournal> journal;
};

using Rounds = std::vector<std::uint64_t>;

TEST_F(Retention, TheNewestRoundsOfAllRunsStay) {
  const RunId first = start_run();
  commit_rounds(first, 5);
  ASSERT_TRUE(journal->set_run_status(first, RunStatus::kDone, "").ok());
  const RunId second = start_run();
  commit_rounds(second, 4);
  EXPECT_EQ(prune({9, {}}), 0U) << "nine there are";
  EXPECT_EQ(prune({6, {}}), 3U);
  EXPECT_EQ(rounds_of(first), (Rounds{4, 5}));
  EXPECT_EQ(rounds_of(second), (Rounds{1, 2, 3, 4}));
  EXPECT_EQ(prune({3, {}}), 3U);
  EXPECT_EQ(rounds_of(first), (Rounds{5})) << "a run's last commit stays: another may continue it";
  EXPECT_EQ(rounds_of(second), (Rounds{3, 4}));
  EXPECT_EQ(journal->pruned(first).value(), RoundId(4));
  EXPECT_EQ(journal->pruned(second).value(), RoundId(2));
  EXPECT_EQ(journal->size()->rounds, 3U);
  EXPECT_EQ(prune({0, {}}), 0U) << "0: any number";
  EXPECT_EQ(journal->commit_of(first, RoundId(4)).error().code, Code::kNotFound);
  EXPECT_NE(journal->commit_of(first, RoundId(4)).error().message.find("keep_rounds"), std::string::npos);
  reopen();
  EXPECT_EQ(rounds_of(second), (Rounds{3, 4}));
  commit(second, 5, {{1, Fate::kCounted}});  // it goes on
  EXPECT_EQ(journal->last_commit(second).value()->record.round, RoundId(5));
}

TEST_F(Retention, RoundsThatAreTooOldGo) {
  const RunId run = start_run();
  commit_rounds(run, 200);  // one a second, and more than a batch
  EXPECT_EQ(prune({0, at(1)}), 0U);
  EXPECT_EQ(prune({0, at(150)}), 149U);
  EXPECT_EQ(rounds_of(run).front(), 150U);
  EXPECT_EQ(prune({0, at(10'000)}), 50U);
  EXPECT_EQ(rounds_of(run), (Rounds{200}));
}

TEST_F(Retention, AModelThatIsKeptStaysOnRecord) {
  const RunId run = start_run(3);
  commit_rounds(run, 6);
  EXPECT_EQ(prune({1, at(10'000)}), 3U);
  EXPECT_EQ(rounds_of(run), (Rounds{4, 5, 6}));
  const std::vector<round::ModelKey> expected{
      {run, ModelVersion(0)}, {run, ModelVersion(4)}, {run, ModelVersion(5)}, {run, ModelVersion(6)}};
  EXPECT_EQ(journal->referenced_models().value(), expected) << "what is not named is swept at the next start";
  ASSERT_TRUE(journal->begin_history(round::HistoryId(7), Epoch(), at(1)).ok());
  EXPECT_EQ(journal->lineage()->at(0).forks, (std::vector<round::Fork>{{run, RoundId(6)}}));
}

// Five sites, each with one submission at a time, as the protocol demands. Sites come and go, and some stay away with
// an unresolved submission. A journal that prunes all it can gives them the same answers as one that keeps everything.
TEST_F(Retention, WhoeverMayStillAskIsToldWhatItWouldHaveBeen) {
  for (std::uint32_t seed = 1; seed <= 30; ++seed) {
    files = MemoryFileSystem();
    reopen();
    std::mt19937 random(seed);
    const auto one_in = [&](std::uint32_t n) { return random() % n == 0; };
    using Submission = std::pair<RunId, std::uint64_t>;
    std::map<std::uint32_t, Submission> unresolved;
    std::map<std::uint32_t, std::pair<Submission, Fate>> last_outcome;
    std::map<std::tuple<RunId, std::uint64_t, std::uint32_t>, Fate> truth;
    RunId run = start_run();
    std::uint64_t round = 0;
    std::uint64_t pruned = 0;
    for (int step = 0; step < 60; ++step) {
      if (one_in(25)) {
        ASSERT_TRUE(journal->set_run_status(run, RunStatus::kStopped, "").ok());
        run = start_run();
        round = 0;
      }
      ++round;
      std::map<std::uint32_t, Fate> fates;
      for (std::uint32_t site = 1; site <= kSites; ++site) {
        if (unresolved.contains(site) || one_in(3)) continue;
        fates[site] = static_cast<Fate>(1 + random() % 3);
        truth[{run, round, site}] = fates[site];
        unresolved[site] = {run, round};
      }
      for (std::uint32_t site = 1; site <= kSites; ++site) {
        if (!fates.contains(site) && !unresolved.contains(site) && one_in(4)) fates[site] = Fate::kDeclined;
      }
      commit(run, round, fates);
      pruned += prune({1, {}});
      for (std::uint32_t site = 1; site <= kSites; ++site) {
        if (!unresolved.contains(site)) continue;
        const auto [of_run, of_round] = unresolved[site];
        const Fate fate = truth.at({of_run, of_round, site});
        const Outcome expected = fate == Fate::kCounted ? Outcome::kCounted
                                 : fate == Fate::kLate  ? Outcome::kLate
                                                        : Outcome::kRefused;
        ASSERT_EQ(outcome(of_run, of_round, site), expected)
            << "seed " << seed << ", site " << site << ", run " << of_run.value() << " round " << of_round;
        round::Standing standing{{}, Epoch(1), {{of_run, RoundId(of_round), false, false, {}}}};
        if (const auto last = last_outcome.find(site); last != last_outcome.end()) {
          const auto& [what, was] = last->second;
          standing.rounds.push_back({what.first, RoundId(what.second), true, was == Fate::kCounted,
                                     update_of(what.first, what.second, site)});
        }
        const auto met = journal->meet(SiteId(site), standing, at(1));
        ASSERT_TRUE(met.ok()) << met.error().message;
        if (one_in(site * site)) {  // some stay away for long
          last_outcome[site] = {{of_run, of_round}, fate};
          unresolved.erase(site);
        }
      }
    }
    EXPECT_GT(pruned, 45U) << "of 60 rounds, but for the last of each run";
  }
}

TEST_F(Retention, OfAPrunedRoundOnlyTheSameBytesAreCounted) {
  const RunId run = start_run();
  commit(run, 1, {{1, Fate::kCounted}, {2, Fate::kInvalid}, {3, Fate::kDeclined}});
  commit(run, 2, {{4, Fate::kCounted}});
  ASSERT_EQ(prune({1, {}}), 1U);
  EXPECT_EQ(outcome(run, 1, 1), Outcome::kCounted);
  EXPECT_EQ(journal->outcome(run, RoundId(1), SiteId(1), digest_of("other")).value(), Outcome::kLate);
  EXPECT_EQ(outcome(run, 1, 2), Outcome::kRefused);
  EXPECT_EQ(outcome(run, 1, 3), Outcome::kLate);
  EXPECT_EQ(outcome(run, 1, 5), Outcome::kLate);
  EXPECT_EQ(outcome(run, 3, 1), Outcome::kPending);
}

// A site whose folder was restored from an older copy asks what no other site would ask. The journal no longer knows
// the outcome, and gives the answer that counts nothing twice.
TEST_F(Retention, WhoAsksForLessThanWasCountedIsNotCountedTwice) {
  const RunId run = start_run();
  commit(run, 1, {{1, Fate::kCounted}});
  commit(run, 2, {{1, Fate::kCounted}});
  commit(run, 3, {{2, Fate::kCounted}});
  ASSERT_EQ(prune({1, {}}), 2U);
  EXPECT_EQ(outcome(run, 1, 1), Outcome::kCounted);
  EXPECT_EQ(outcome(run, 2, 1), Outcome::kCounted);
}

TEST_F(Retention, RunsMayBePrunedInAnyOrder) {
  const RunId first = start_run();
  commit_rounds(first, 5);
  ASSERT_TRUE(journal->set_run_status(first, RunStatus::kDone, "").ok());
  prune({2, {}});
  const RunId second = start_run();
  commit_rounds(second, 3);  // by its clock before the last rounds of the first
  EXPECT_EQ(prune({0, at(3)}), 2U);
  EXPECT_EQ(journal->pruned(second).value(), RoundId(2));
  EXPECT_EQ(prune({0, at(5)}), 1U);
  EXPECT_EQ(journal->pruned(first).value(), RoundId(4));
  EXPECT_EQ(outcome(second, 2, 1), Outcome::kCounted);
}

TEST_F(Retention, WhatAMemberKnowsOfPrunedRoundsIsNoNewerJournal) {
  const RunId run = start_run();
  commit(run, 1, {{1, Fate::kCounted}, {2, Fate::kCounted}});
  commit(run, 2, {{1, Fate::kCounted}});
  commit(run, 3, {{1, Fate::kCounted}});
  ASSERT_EQ(prune({1, {}}), 2U);
  const auto meets = [&](std::uint32_t site, round::KnownRound known) {
    return journal->meet(SiteId(site), {{}, Epoch(1), {known}}, at(1)).ok();
  };
  const auto known = [&](std::uint64_t round, bool decided, bool counted, const Digest& digest) {
    return round::KnownRound{run, RoundId(round), decided, counted, digest};
  };
  EXPECT_TRUE(meets(2, known(1, true, true, update_of(run, 1, 2))));
  EXPECT_TRUE(meets(1, known(1, true, true, update_of(run, 1, 1))));
  EXPECT_TRUE(meets(3, known(1, true, false, {}))) << "late";
  EXPECT_TRUE(meets(3, known(2, false, false, {}))) << "pending";
  EXPECT_FALSE(meets(2, known(1, true, true, digest_of("other")))) << "another journal counted that";
  EXPECT_FALSE(meets(2, known(2, true, true, update_of(run, 2, 2))));
  EXPECT_FALSE(meets(3, known(5, true, false, {}))) << "a round that is not there yet";
}

TEST_F(Retention, TheEpochOfPrunedAttemptsDoesNotComeAgain) {
  const RunId run = start_run();
  commit_rounds(run, 4);
  const Epoch last = journal->last_attempt(run).value()->epoch;
  prune({1, {}});
  EXPECT_EQ(journal->open_attempt(attempt_of(run, 5, Epoch(last.value() - 1))).error().code, Code::kFailedPrecondition);
  EXPECT_GT(journal->next_epoch().value(), last);
}

TEST_F(Retention, ACrashAtAnyOperationLeavesABatchWholeOrGone) {
  const auto state = [&] {
    std::string text = std::to_string(journal->pruned(RunId(1)).value().value()) + ":";
    const Rounds rounds = rounds_of(RunId(1));
    for (const std::uint64_t round : rounds) text += " " + std::to_string(round);
    for (std::uint64_t round = 1; round <= 4; ++round) {
      for (std::uint32_t site = 1; site <= 3; ++site)
        text += std::string(" ") + std::string(outcome_name(outcome(RunId(1), round, site)));
    }
    return text;
  };
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
    for (std::uint64_t crash_at = 0;; ++crash_at) {
      files = MemoryFileSystem();
      reopen();
      const RunId run = start_run();
      commit(run, 1, {{1, Fate::kCounted}, {2, Fate::kInvalid}});
      commit(run, 2, {{2, Fate::kCounted}});
      commit(run, 3, {{3, Fate::kCounted}});
      commit(run, 4, {{3, Fate::kCounted}});
      const std::string before = state();
      files.fail_at(crash_at, Fault::kCrash);
      const bool done = journal->prune_rounds({1, {}}).ok();
      const bool crashed = files.crashed();
      files.restart(unsynced, crash_at);
      reopen();
      const std::string after = state();
      EXPECT_TRUE(after == before || after.starts_with("3: 4 ")) << crash_at << "\n" << after;
      if (done) EXPECT_NE(after, before) << crash_at;
      prune({1, {}});
      EXPECT_EQ(state().substr(0, 5), "3: 4 ");
      EXPECT_EQ(outcome(run, 1, 1), Outcome::kCounted);
      EXPECT_EQ(outcome(run, 2, 2), Outcome::kCounted);
      if (!crashed) break;
      ASSERT_LT(crash_at, 500U);
    }
  }
}

TEST_F(Retention, WhatPruningLeavesIsUsedAgain) {
  const RunId run = start_run();
  commit_rounds(run, 600);
  prune({20, {}});
  const JournalSize before = journal->size().value();
  EXPECT_GT(before.free_bytes, before.bytes / 2);
  for (std::uint64_t round = 601; round <= 800; ++round) commit(run, round, {{1, Fate::kCounted}});
  EXPECT_EQ(journal->size()->bytes, before.bytes);
}

TEST_F(Retention, TokensThatServedLongAgoGo) {
  const auto token = [](const std::string& id, std::int64_t expires) {
    return TokenRow{id, digest_of(id), Role::kSite, id, "eu", 9, at(expires), {}};
  };
  const auto add = [&](const TokenRow& row) { ASSERT_TRUE(journal->add_token(row).ok()); };
  const auto redeem = [&](const std::string& id, const std::string& name, std::int64_t when) {
    const NodeRow row{NodeId(), Role::kSite, name, "eu", 9, "serial", at(when), "", {}, {}, ""};
    ASSERT_TRUE(journal->redeem_token(digest_of(id), row, at(when)).ok());
  };
  add(token("used", 1000));
  redeem("used", "used", 100);
  add(token("used-late", 1000));
  redeem("used-late", "used-late", 300);
  add(token("expired", 100));
  add(token("valid", 1000));
  add(token("revoked", 1000));
  ASSERT_TRUE(journal->revoke_token("revoked", at(100)).ok());
  add(token("revoked-late", 100));
  ASSERT_TRUE(journal->revoke_token("revoked-late", at(300)).ok());
  TokenRow several = token("several-*", 1000);
  several.uses_max = 2;
  add(several);
  redeem("several-*", "several-aa", 100);
  TokenRow over = token("over-*", 150);
  over.uses_max = 2;
  add(over);
  redeem("over-*", "over-aa", 100);
  EXPECT_EQ(journal->prune_tokens(at(99)).value(), 0U);
  EXPECT_EQ(journal->prune_tokens(at(200)).value(), 4U);
  std::set<std::string> left;
  const std::vector<TokenRow> tokens = journal->tokens().value();
  for (const TokenRow& row : tokens) left.insert(row.id);
  EXPECT_EQ(left, (std::set<std::string>{"used-late", "valid", "revoked-late", "several-*"}));
  EXPECT_EQ(journal->enrolments("used").value(), 1U) << "a folder that begins anew still begins above those before";
}

TEST(RetentionVersions, AJournalOfTheFourthVersionIsBroughtUpToDate) {
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder("/c").ok());
    {
      auto old = Database::open(files, kJournalPath, std::span(kJournalSteps).first(4), "nobody").value();
      ASSERT_TRUE(old->run("INSERT INTO counters VALUES ('epoch', 41)").ok());
    }
    files.fail_at(crash_at, Fault::kCrash);
    const bool opened = CoordinatorJournal::open(files, kJournalPath).ok();
    const bool crashed = files.crashed();
    files.restart(Unsynced::kTorn, crash_at);
    auto journal = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(journal.ok()) << journal.error().to_string() << " after a crash at operation " << crash_at;
    EXPECT_EQ((*journal)->pruned(RunId(1)).value(), RoundId(0));
    EXPECT_EQ((*journal)->next_epoch().value(), Epoch(42));
    if (!crashed) {
      EXPECT_TRUE(opened);
      break;
    }
  }
}

}  // namespace
}  // namespace fluvial::store
