// Journals of 0.1, in each of its formats, made from their own tables: today's journal holds all of their content.
#include <gtest/gtest.h>

#include <span>

#include "core/store/journal.h"
#include "core/store/journal_schema.h"
#include "core/store/memory_file_system.h"
#include "core/store/sqlite.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

constexpr RunId kOldRun{1};
constexpr std::size_t kLastJournalFormat = 3;  // of 0.1; later ones are among the fixtures of tests/upgrade

WallTime milliseconds_in(std::int64_t milliseconds) { return WallTime(std::chrono::milliseconds(milliseconds)); }

// As the first build of 0.1 wrote it: today's plans have more keys.
constexpr const char* kPlan =
    R"({"name":"digits","rounds":4,"local_steps":2,"codec":"int8","chunk_values":4096,"fraction_bits":36,)"
    R"("value_abs_max":512,"update_norm_max":100,"attempts_max":5,"models_kept":4,"seed":99,"sum_digest":true,)"
    R"("participants.fraction":0.5,"participants.min":3,"participants.quorum":2,"participants.weight_min":10,)"
    R"("deadlines.soft_ms":20000,"deadlines.hard_ms":50000,"optimizer.name":"fedavgm","optimizer.learning_rate":0.5,)"
    R"("optimizer.momentum":0.8,"residual.norm_max":7,"residual.age_max_rounds":9,"worker":{"lr":0.05}})";
constexpr const char* kSchema = R"([{"name":"w","dtype":"F32","shape":[3]}])";

// Site 1 and its lease, site 2 and its weight: 20 bytes each.
std::string participants() {
  std::string bytes(40, '\0');
  bytes[0] = 1;
  bytes[4] = 11;
  bytes[12] = 100;
  bytes[20] = 2;
  bytes[24] = 12;
  bytes[32] = 50;
  return bytes;
}

Status fill(Database& old) {
  const std::string who = participants();
  for (const char* sql : {
           "INSERT INTO federation VALUES (1, 'hospitals', 1000)",
           "INSERT INTO counters VALUES ('epoch', 41), ('node', 2)",
           "INSERT INTO names VALUES ('a', 'site', 1), ('b', 'site', 2)",
           "INSERT INTO nodes (id, role, name, region, weight_max, certificate_serial, enrolled_at, advertise, "
           "revoked_at)"
           " VALUES (1, 'site', 'a', 'eu', 100, 'serial-a', 2000, '', NULL), (2, 'site', 'b', 'eu', 50, 'serial-b', "
           "3000,"
           " '', 4000)",
           "INSERT INTO leases VALUES (1, 0, 11), (2, 0, 12)",
       }) {
    FLUVIAL_TRY(old.run(sql));
  }
  FLUVIAL_TRY(old.run("INSERT INTO tokens VALUES ('t', ?, 'site', 'a', 'eu', 100, 9000, 2000)", {digest_of("secret")}));
  FLUVIAL_TRY(old.run("INSERT INTO runs VALUES (1, ?, ?, ?, 0, 'why', 5000, 0)",
                      {std::string_view(kPlan), std::string_view(kSchema), digest_of("initial")}));
  for (const int round : {1, 2}) {
    FLUVIAL_TRY(old.run("INSERT INTO attempts VALUES (1, ?, 1, ?, ?, 30, ?)",
                        {round, 20 + round, as_byte_span(who), digest_of("base")}));
  }
  FLUVIAL_TRY(
      old.run("INSERT INTO commits VALUES (1, 1, 1, 2, 17, ?, ?, 'run-1/round-1.optimizer.safetensors', ?, 1200, 4096,"
              " 8192, '{\"loss\":0.25}', '{\"accuracy\":0.5}', 6000)",
              {digest_of("model"), digest_of("model"), digest_of("sum")}));
  FLUVIAL_TRY(old.run("INSERT INTO contributions VALUES (1, 1, 1, 11, 17, ?, 18253611008, '{\"loss\":0.25}')",
                      {digest_of("update")}));
  return old.run("INSERT INTO refusals VALUES (1, 1, 2, 1, 'NaN in tensor ''w''')");
}

void expect_members(CoordinatorJournal& journal) {
  EXPECT_EQ((*journal.federation())->name, "hospitals");
  const std::vector<NodeRow> nodes = journal.nodes().value();
  ASSERT_EQ(nodes.size(), 2U);
  EXPECT_EQ(nodes[0].certificate_serial, "serial-a");
  EXPECT_FALSE(nodes[0].revoked_at || nodes[0].quarantined_at || nodes[0].removed_at);
  EXPECT_EQ(nodes[1].revoked_at, milliseconds_in(4000));
  EXPECT_EQ(journal.leases().value(),
            (std::vector<LeaseRow>{{NodeId(1), NodeId(0), Epoch(11)}, {NodeId(2), NodeId(0), Epoch(12)}}));
  const TokenRow token = journal.tokens()->at(0);
  EXPECT_EQ(token.used_at, milliseconds_in(2000));
  EXPECT_EQ(token.uses, 1U);
  EXPECT_EQ(token.uses_max, 1U);
  EXPECT_EQ(journal.enrolments("a").value(), 1U);
  EXPECT_EQ(journal.next_epoch().value(), Epoch(42));
}

void expect_run(CoordinatorJournal& journal) {
  const RunRow run = journal.run(kOldRun).value();
  EXPECT_EQ(run.status, RunStatus::kRunning);
  EXPECT_EQ(run.plan.rounds, 4U);
  EXPECT_EQ(run.plan.optimizer.kind, round::Optimizer::kFedAvgM);
  EXPECT_EQ(run.plan.optimizer.lr, 0.5);
  EXPECT_EQ(run.plan.optimizer.momentum, 0.8);
  EXPECT_EQ(run.plan.hard_deadline, std::chrono::milliseconds(50'000));
  EXPECT_EQ(run.plan.worker.values.at("lr"), round::WorkerValue(0.05));
  EXPECT_EQ(run.schema.value_count(), 3U);
  const CommitRow commit = journal.commit_of(kOldRun, RoundId(1)).value();
  EXPECT_EQ(commit.record.model.digest, digest_of("model"));
  EXPECT_EQ(commit.sum_digest, digest_of("sum"));
  EXPECT_EQ(commit.optimizer, "run-1/round-1.optimizer.safetensors");
  EXPECT_EQ(commit.record.contributors.find(SiteId(1))->probe, std::int64_t{17} << 30);
  EXPECT_EQ(commit.evaluation.at("accuracy"), 0.5);
  EXPECT_EQ(journal.outcome(kOldRun, RoundId(1), SiteId(1), digest_of("update")).value(), Outcome::kCounted);
  EXPECT_EQ(journal.outcome(kOldRun, RoundId(1), SiteId(1), digest_of("another")).value(), Outcome::kLate);
  EXPECT_EQ(journal.outcome(kOldRun, RoundId(2), SiteId(1), digest_of("another")).value(), Outcome::kPending);
  EXPECT_EQ(commit.record.refusals.at(0).site, SiteId(2));
  // The round that was open goes on as another attempt, with what the first one fixed.
  round::AttemptRecord open = journal.last_attempt(kOldRun).value().value();
  EXPECT_EQ(open.round, RoundId(2));
  EXPECT_EQ(open.participants,
            (std::vector<round::Participant>{{SiteId(1), Epoch(11), 100}, {SiteId(2), Epoch(12), 50}}));
  open.attempt = AttemptId(2);
  open.epoch = Epoch(42);
  EXPECT_TRUE(journal.open_attempt(open).ok());
}

TEST(JournalVersions, WhatAJournalOfEachEarlierFormatHoldsIsThere) {
  for (std::size_t format = 1; format <= kLastJournalFormat; ++format) {
    SCOPED_TRACE("format " + std::to_string(format));
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder("/c").ok());
    {
      auto old = Database::open(files, kJournalPath, std::span(kJournalSteps).first(format), "nobody").value();
      const Status filled = old->transact([&] { return fill(*old); });
      ASSERT_TRUE(filled.ok()) << filled.error().to_string();
    }
    auto journal = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(journal.ok()) << journal.error().to_string();
    expect_members(**journal);
    expect_run(**journal);
  }
}

// The version before the histories: its content is kept, and a history begins in it as in any other.
TEST(JournalVersions, AJournalOfTheSecondVersionIsBroughtUpToDate) {
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder("/c").ok());
    {
      auto old = Database::open(files, kJournalPath, std::span(kJournalSteps).first(2), "nobody").value();
      ASSERT_TRUE(
          old->transact([&]() -> Status {
               FLUVIAL_TRY(old->run("INSERT INTO names VALUES ('a', 'site', 1)"));
               FLUVIAL_TRY(old->run(
                   "INSERT INTO nodes VALUES (1, 'site', 'a', 'eu', 1000, 'serial', 1000000, '', NULL, 7, 'w')"));
               FLUVIAL_TRY(old->run("INSERT INTO counters VALUES ('epoch', 41), ('node', 1)"));
               const Digest hash = digest_of("secret");
               FLUVIAL_TRY(old->run("INSERT INTO tokens VALUES ('used', ?, 'site', 'a', 'eu', 9, 7, 6)", {hash}));
               return old->run("INSERT INTO leases VALUES (1, 0, 40)");
             })
              .ok());
    }
    files.fail_at(crash_at, Fault::kCrash);
    const bool opened = CoordinatorJournal::open(files, kJournalPath).ok();
    const bool crashed = files.crashed();
    files.restart(Unsynced::kTorn, crash_at);
    auto journal = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(journal.ok()) << journal.error().to_string() << " after a crash at operation " << crash_at;
    EXPECT_EQ((*journal)->node(NodeId(1)).value()->quarantine_reason, "w");
    EXPECT_EQ((*journal)->tokens()->at(0).uses, 1U) << "a token stays used";
    EXPECT_EQ((*journal)->enrolments("a").value(), 1U);
    EXPECT_TRUE((*journal)->lineage().value().empty());
    EXPECT_TRUE((*journal)->lost().value().empty());
    EXPECT_TRUE((*journal)->meet(NodeId(1), {round::HistoryId(0), Epoch(41), {}}, at(5)).ok());
    EXPECT_FALSE((*journal)->meet(NodeId(1), {round::HistoryId(0), Epoch(42), {}}, at(5)).ok());
    EXPECT_EQ((*journal)->begin_history(round::HistoryId(7), Epoch(), at(0))->began, Epoch(42));
    EXPECT_EQ((*journal)->leases()->at(0).epoch, Epoch(43));
    if (!crashed) {
      EXPECT_TRUE(opened);
      break;
    }
  }
}

TEST(JournalVersions, AJournalOfTheFirstVersionIsBroughtUpToDate) {
  for (std::uint64_t crash_at = 0;; ++crash_at) {
    MemoryFileSystem files;
    ASSERT_TRUE(files.make_folder("/c").ok());
    {
      auto old = Database::open(files, kJournalPath, std::span(kJournalSteps).first(1), "nobody").value();
      ASSERT_TRUE(old->transact([&]() -> Status {
                       FLUVIAL_TRY(old->run("INSERT INTO names VALUES ('a', 'site', 1)"));
                       return old->run(
                           "INSERT INTO nodes VALUES (1, 'site', 'a', 'eu', 1000, 'serial', 1000000, '', NULL)");
                     })
                      .ok());
    }
    files.fail_at(crash_at, Fault::kCrash);
    const bool opened = CoordinatorJournal::open(files, kJournalPath).ok();
    const bool crashed = files.crashed();
    files.restart(Unsynced::kTorn, crash_at);
    auto journal = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(journal.ok()) << journal.error().to_string() << " after a crash at operation " << crash_at;
    const NodeRow expected{NodeId(1), Role::kSite, "a", "eu", 1000, "serial", at(1000), "", {}, {}, ""};
    EXPECT_EQ((*journal)->nodes().value(), std::vector{expected});
    EXPECT_TRUE((*journal)->quarantine(NodeId(1), at(5), "why").ok());
    EXPECT_EQ((*journal)->node(NodeId(1)).value()->quarantine_reason, "why");
    if (!crashed) {
      EXPECT_TRUE(opened);
      break;
    }
  }
}

}  // namespace
}  // namespace fluvial::store
