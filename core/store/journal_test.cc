#include "core/store/journal.h"

#include <gtest/gtest.h>
#include <sys/wait.h>
#include <unistd.h>

#include <cmath>
#include <filesystem>

#include "core/base/testing.h"
#include "core/store/memory_file_system.h"
#include "core/store/test_support.h"

namespace fluvial::store {
namespace {

TokenRow token(const std::string& name, Role role = Role::kSite) {
  return {name + "-token", digest_of(name), role, name, "eu", 1000, at(2000), std::nullopt};
}
NodeRow node(const std::string& name, Role role = Role::kSite) {
  return {NodeId(), role, name, "eu", 1000, "serial", at(1000), "", std::nullopt, std::nullopt, ""};
}
round::Schema schema() { return round::Schema::make({{"w", round::DType::kF32, {3}}}).value(); }
RunRow full_run_row() {
  round::Plan plan;
  plan.name = "digits";
  plan.worker.values = {{"lr", 0.1}};
  return {RunId(), plan, schema(), digest_of("initial"), RunStatus::kRunning, "", at(3), RunId()};
}
round::AttemptRecord attempt_row(std::uint64_t round, std::uint32_t attempt, std::uint64_t epoch) {
  round::AttemptRecord row{RunId(1), RoundId(round), AttemptId(attempt), Epoch(epoch), {}, 30, {}};
  row.base = {RunId(1), ModelVersion(round - 1), digest_of("base"), 0};
  row.participants = {{SiteId(1), Epoch(1), 1000}, {SiteId(2), Epoch(2), 1000}, {SiteId(3), Epoch(3), 500}};
  return row;
}
CommitRow commit_row(std::uint64_t round, std::uint32_t attempt) {
  CommitRow row;
  row.record.run = RunId(1);
  row.record.round = RoundId(round);
  row.record.attempt = AttemptId(attempt);
  EXPECT_TRUE(row.record.contributors.add({SiteId(1), Epoch(1), 10, digest_of("u1"), 10, {{"loss", 0.25}}}).ok());
  row.record.refusals = {{SiteId(2), {Code::kInvalidArgument, "NaN in tensor 'w'"}},
                         {SiteId(3), {Code::kUnavailable, "no worker"}}};
  row.late = {{SiteId(4), "training since 03:12 UTC"}, {SiteId(5), "not connected since 02:00 UTC"}};
  row.participants_count = 5;
  row.record.model.digest = row.master = digest_of("model");
  row.sum_digest = digest_of("sum");
  row.duration_ms = 12;
  row.metrics = {{"loss", 0.25}};
  row.committed_at = at(5);
  return row;
}

class Journal : public testing::Test {
 protected:
  Journal() {
    EXPECT_TRUE(files.make_folder("/c").ok());
    reopen();
  }
  void reopen() {
    journal.reset();
    Result<std::unique_ptr<CoordinatorJournal>> opened = CoordinatorJournal::open(files, kJournalPath);
    ASSERT_TRUE(opened.ok()) << opened.error().message;
    journal = std::move(*opened);
  }
  void crash_and_reopen() {
    files.restart(Unsynced::kLost);
    reopen();
  }
  Code code_of(const Status& status) { return status.ok() ? Code{} : status.error().code; }

  MemoryFileSystem files;
  std::unique_ptr<CoordinatorJournal> journal;
};

TEST_F(Journal, OneHolderAtATime) {
  const auto second = CoordinatorJournal::open(files, kJournalPath);
  ASSERT_FALSE(second.ok());
  EXPECT_EQ(second.error().code, Code::kFailedPrecondition);
  EXPECT_NE(second.error().message.find("another coordinator holds /c/journal.db"), std::string::npos)
      << second.error().message;
  journal.reset();
  EXPECT_TRUE(CoordinatorJournal::open(files, kJournalPath).ok());
}

TEST_F(Journal, ADamagedOrNewerFileIsRefused) {
  journal.reset();
  const std::string noise(4096, 'x');
  const ByteSpan parts[] = {as_byte_span(noise)};
  ASSERT_TRUE(write_file_atomically(files, "/c/noise.db", parts).ok());
  EXPECT_EQ(CoordinatorJournal::open(files, "/c/noise.db").error().code, Code::kDataLoss);
  // user_version is the big-endian number at byte 60.
  auto file = files.open(kJournalPath, OpenMode::kReadWrite).value();
  const std::byte newer[] = {std::byte{0}, std::byte{0}, std::byte{0}, std::byte{14}};
  ASSERT_TRUE(file->write_at(60, newer).ok());
  const Error error = CoordinatorJournal::open(files, kJournalPath).error();
  EXPECT_EQ(error.code, Code::kFailedPrecondition);
  EXPECT_NE(error.message.find("a newer version of Fluvial (format 14, this one knows 1 to 13)"), std::string::npos);
}

TEST_F(Journal, FoundedOnceAndEpochsNeverRepeat) {
  EXPECT_FALSE(journal->federation()->has_value());
  ASSERT_TRUE(journal->found({"demo", at(1)}).ok());
  EXPECT_EQ(journal->found({"other", at(2)}).error().code, Code::kAlreadyExists);
  EXPECT_EQ(journal->next_epoch()->value(), 1u);
  crash_and_reopen();
  EXPECT_EQ(journal->next_epoch()->value(), 2u);
  EXPECT_EQ((*journal->federation())->name, "demo");
}

TEST_F(Journal, TokensAreUsedOnce) {
  ASSERT_TRUE(journal->add_token(token("a")).ok());
  EXPECT_EQ(journal->add_token(token("a")).error().code, Code::kAlreadyExists);
  EXPECT_EQ(journal->redeem_token(digest_of("x"), node("a"), at(1)).error().code, Code::kUnauthenticated);
  EXPECT_NE(
      journal->redeem_token(digest_of("a"), node("a"), at(2000)).error().message.find("expired at 1970-01-01 00:33"),
      std::string::npos);
  EXPECT_NE(journal->redeem_token(digest_of("a"), node("b"), at(9)).error().message.find("is for site 'a'"),
            std::string::npos);
  EXPECT_TRUE(journal->nodes()->empty());

  EXPECT_EQ(journal->reserve_node_id(Role::kSite, "a")->value(), 1u);
  const NodeRow registered = journal->redeem_token(digest_of("a"), node("a"), at(100)).value();
  EXPECT_EQ(registered.id, NodeId(1));
  crash_and_reopen();
  const Error again = journal->redeem_token(digest_of("a"), node("a"), at(101)).error();
  EXPECT_EQ(again.code, Code::kUnauthenticated);
  EXPECT_NE(again.message.find("was used at 1970-01-01 00:01:40 UTC"), std::string::npos) << again.message;
  EXPECT_EQ(journal->nodes().value(), std::vector<NodeRow>{registered});
  EXPECT_EQ((*journal->find_token(digest_of("a")))->used_at, at(100));
}

TEST_F(Journal, EnrollingAgainKeepsTheIdAndEndsARevocation) {
  ASSERT_TRUE(journal->add_token(token("a")).ok());
  ASSERT_TRUE(journal->redeem_token(digest_of("a"), node("a"), at(1)).ok());
  ASSERT_TRUE(journal->revoke(NodeId(1), at(7)).ok());
  ASSERT_TRUE(journal->revoke(NodeId(1), at(8)).ok());
  EXPECT_EQ((*journal->node(NodeId(1)))->revoked_at, at(7));
  TokenRow second = token("a");
  second.id = "second";
  second.secret_hash = digest_of("second");
  ASSERT_TRUE(journal->add_token(second).ok());
  NodeRow renewed = node("a");
  renewed.certificate_serial = "serial-2";
  EXPECT_EQ(journal->enrolments("a").value(), 1u);
  EXPECT_EQ(journal->redeem_token(second.secret_hash, renewed, at(10))->id, NodeId(1));
  crash_and_reopen();
  EXPECT_EQ(journal->enrolments("a").value(), 2u);
  EXPECT_EQ(journal->enrolments("b").value(), 0u);
  EXPECT_EQ((*journal->node(NodeId(1)))->certificate_serial, "serial-2");
  EXPECT_FALSE((*journal->node(NodeId(1)))->revoked_at.has_value());
  EXPECT_EQ(journal->reserve_node_id(Role::kAggregator, "a").error().code, Code::kAlreadyExists);
  EXPECT_EQ(journal->revoke(NodeId(5), at(1)).error().code, Code::kNotFound);
  ASSERT_TRUE(journal->set_advertise(NodeId(1), "h:1").ok());
  EXPECT_EQ((*journal->node(NodeId(1)))->advertise, "h:1");
}

TEST_F(Journal, AQuarantineStaysUntilItIsLifted) {
  ASSERT_TRUE(journal->add_token(token("a")).ok());
  const NodeId a = journal->redeem_token(digest_of("a"), node("a"), at(1500)).value().id;
  ASSERT_TRUE(journal->quarantine(a, at(1600), "two contents").ok());
  ASSERT_TRUE(journal->quarantine(a, at(1700), "again").ok());
  crash_and_reopen();
  EXPECT_EQ(journal->node(a).value()->quarantined_at, at(1600));
  EXPECT_EQ(journal->node(a).value()->quarantine_reason, "two contents");
  TokenRow second = token("a");
  second.id = "second";
  second.secret_hash = digest_of("second");
  ASSERT_TRUE(journal->add_token(second).ok());
  EXPECT_EQ(journal->redeem_token(second.secret_hash, node("a"), at(1800)).value().quarantined_at, at(1600))
      << "a new certificate does not lift it";
  ASSERT_TRUE(journal->clear_quarantine(a).ok());
  crash_and_reopen();
  EXPECT_EQ(journal->node(a).value()->quarantined_at, std::nullopt);
  EXPECT_EQ(journal->node(a).value()->quarantine_reason, "");
  EXPECT_EQ(journal->quarantine(NodeId(99), at(1), "").error().code, Code::kNotFound);
  EXPECT_EQ(journal->clear_quarantine(NodeId(99)).error().code, Code::kNotFound);
}

TEST_F(Journal, ALeaseChangesItsEpochWithTheParent) {
  ASSERT_TRUE(journal->add_token(token("a")).ok());
  ASSERT_TRUE(journal->redeem_token(digest_of("a"), node("a"), at(1)).ok());
  EXPECT_EQ(journal->grant(NodeId(9), NodeId()).error().code, Code::kNotFound);
  EXPECT_EQ(journal->grant(NodeId(1), NodeId()).value(), (LeaseRow{NodeId(1), NodeId(), Epoch(1)}));
  EXPECT_EQ(journal->grant(NodeId(1), NodeId())->epoch, Epoch(1));
  EXPECT_EQ(journal->grant(NodeId(1), NodeId(4))->epoch, Epoch(2));
  EXPECT_EQ(journal->next_epoch().value(), Epoch(3));
  EXPECT_EQ(journal->renew(NodeId(1))->epoch, Epoch(4));
  crash_and_reopen();
  EXPECT_EQ(journal->leases().value(), (std::vector<LeaseRow>{{NodeId(1), NodeId(4), Epoch(4)}}));
}

TEST_F(Journal, RunsComeBackWhole) {
  ASSERT_EQ(journal->create_run(full_run_row()).value(), RunId(1));
  ASSERT_EQ(journal->create_run(full_run_row()).value(), RunId(2));
  ASSERT_TRUE(journal->set_run_status(RunId(1), RunStatus::kPaused, "no quorum").ok());
  crash_and_reopen();
  RunRow expected = full_run_row();
  expected.id = RunId(1);
  expected.status = RunStatus::kPaused;
  expected.reason = "no quorum";
  EXPECT_EQ(journal->run(RunId(1)).value(), expected);
  EXPECT_EQ(journal->runs()->size(), 2u);
  EXPECT_EQ(journal->run(RunId(3)).error().code, Code::kNotFound);
  ASSERT_TRUE(journal->set_run_status(RunId(1), RunStatus::kStopped, "by hand").ok());
  EXPECT_EQ(journal->set_run_status(RunId(1), RunStatus::kRunning, "").error().code, Code::kFailedPrecondition);
  EXPECT_EQ(journal->open_attempt(attempt_row(1, 1, 1)).error().code, Code::kFailedPrecondition);
}

TEST_F(Journal, TheRunsThatARunContinues) {
  for (const std::uint64_t continues : {0, 1, 0, 2, 4}) {
    RunRow row = full_run_row();
    row.continues = RunId(continues);
    ASSERT_TRUE(journal->create_run(row).ok());
  }
  crash_and_reopen();
  EXPECT_EQ(journal->continued_by(RunId(5), 64).value(), (std::vector<RunId>{RunId(4), RunId(2), RunId(1)}));
  EXPECT_EQ(journal->continued_by(RunId(5), 2).value(), (std::vector<RunId>{RunId(4), RunId(2)}));
  EXPECT_TRUE(journal->continued_by(RunId(3), 64)->empty());
  EXPECT_TRUE(journal->continued_by(RunId(9), 64)->empty());
}

TEST_F(Journal, AttemptsGrowAndKeepWhatARoundFixes) {
  ASSERT_TRUE(journal->create_run(full_run_row()).ok());
  EXPECT_EQ(code_of(journal->open_attempt(attempt_row(2, 1, 5))), Code::kFailedPrecondition) << "a gap";
  ASSERT_TRUE(journal->open_attempt(attempt_row(1, 1, 5)).ok());
  EXPECT_EQ(journal->next_epoch().value(), Epoch(6)) << "above the epochs of attempts";
  EXPECT_EQ(code_of(journal->open_attempt(attempt_row(1, 1, 7))), Code::kFailedPrecondition) << "the same attempt";
  EXPECT_EQ(code_of(journal->open_attempt(attempt_row(1, 2, 4))), Code::kFailedPrecondition) << "an epoch that ended";
  round::AttemptRecord other = attempt_row(1, 2, 5);
  other.scale_bits = 29;
  EXPECT_EQ(code_of(journal->open_attempt(other)), Code::kFailedPrecondition) << "this term has sums at the other";
  other = attempt_row(1, 2, 7);
  other.scale_bits = 31;
  EXPECT_EQ(code_of(journal->open_attempt(other)), Code::kFailedPrecondition);
  other = attempt_row(1, 2, 7);
  other.base.digest = digest_of("another");
  EXPECT_EQ(code_of(journal->open_attempt(other)), Code::kFailedPrecondition);
  other = attempt_row(1, 2, 7);
  other.participants.pop_back();
  EXPECT_EQ(code_of(journal->open_attempt(other)), Code::kFailedPrecondition);
  other = attempt_row(1, 2, 7);
  other.participants[0].weight_max = 1;
  EXPECT_EQ(code_of(journal->open_attempt(other)), Code::kFailedPrecondition);
  other = attempt_row(1, 2, 7);
  other.participants[0].lease = Epoch(6);                   // moved under another parent: still the same participant
  other.participants.push_back({SiteId(99), Epoch(6), 5});  // called as a substitute
  ASSERT_TRUE(journal->open_attempt(other).ok());
  crash_and_reopen();
  EXPECT_EQ(journal->last_attempt(RunId(1)).value(), other);
  EXPECT_FALSE(journal->last_attempt(RunId(2))->has_value());
}

TEST_F(Journal, ANewTermMayLowerARoundsScale) {
  ASSERT_TRUE(journal->create_run(full_run_row()).ok());
  ASSERT_TRUE(journal->open_attempt(attempt_row(1, 1, 5)).ok());
  round::AttemptRecord lowered = attempt_row(1, 2, 6);
  lowered.scale_bits = 29;
  ASSERT_TRUE(journal->open_attempt(lowered).ok());
  crash_and_reopen();
  EXPECT_EQ(journal->last_attempt(RunId(1)).value(), lowered);
}

TEST_F(Journal, ACommitIsWrittenOnceAndReadBackWhole) {
  ASSERT_TRUE(journal->create_run(full_run_row()).ok());
  EXPECT_EQ(code_of(journal->commit(commit_row(1, 1))), Code::kFailedPrecondition) << "no attempt";
  ASSERT_TRUE(journal->open_attempt(attempt_row(1, 1, 1)).ok());
  ASSERT_TRUE(journal->open_attempt(attempt_row(1, 2, 2)).ok());
  EXPECT_EQ(code_of(journal->commit(commit_row(1, 1))), Code::kFailedPrecondition) << "not the last attempt";
  CommitRow stranger = commit_row(1, 2);
  ASSERT_TRUE(stranger.record.contributors.add({SiteId(8), Epoch(1), 1, {}, 0, {}}).ok());
  EXPECT_EQ(code_of(journal->commit(stranger)), Code::kFailedPrecondition);
  ASSERT_TRUE(journal->commit(commit_row(1, 2)).ok());
  EXPECT_EQ(code_of(journal->commit(commit_row(1, 2))), Code::kFailedPrecondition) << "twice";
  EXPECT_EQ(code_of(journal->open_attempt(attempt_row(1, 3, 3))), Code::kFailedPrecondition) << "committed";
  ASSERT_TRUE(journal->open_attempt(attempt_row(2, 1, 3)).ok());
  CommitRow second = commit_row(2, 1);
  second.record.refusals.clear();
  second.sum_digest.reset();
  second.optimizer = "run-1/round-2.optimizer.safetensors";
  ASSERT_TRUE(journal->commit(second).ok());
  ASSERT_TRUE(journal->set_evaluation(RunId(1), RoundId(1), {{"accuracy", 0.5}}).ok());
  EXPECT_EQ(code_of(journal->set_evaluation(RunId(1), RoundId(3), {})), Code::kNotFound);
  crash_and_reopen();
  const CommitRow first = journal->commit_of(RunId(1), RoundId(1)).value();
  const CommitRow expected = commit_row(1, 2);
  EXPECT_EQ(first.record.contributors, expected.record.contributors);
  EXPECT_EQ(first.record.refusals, expected.record.refusals);
  EXPECT_EQ(first.late, expected.late);
  EXPECT_EQ(first.sum_digest, expected.sum_digest);
  EXPECT_EQ(first.metrics, expected.metrics);
  EXPECT_EQ(first.evaluation, (round::Metrics{{"accuracy", 0.5}}));
  EXPECT_EQ(first.committed_at, expected.committed_at);
  EXPECT_EQ(first.record.contributors.total_weight(), 10u);
  EXPECT_EQ((*journal->last_commit(RunId(1)))->optimizer, second.optimizer);
  EXPECT_FALSE((*journal->last_commit(RunId(1)))->sum_digest.has_value());
  EXPECT_EQ(journal->commits(RunId(1), RoundId(0), 1)->size(), 1u);
  EXPECT_EQ(journal->commits(RunId(1), RoundId(2), 9)->front().record.round, RoundId(2));
  EXPECT_FALSE(journal->last_commit(RunId(2))->has_value());
  EXPECT_EQ(journal->referenced_models().value(),
            (std::vector<round::ModelKey>{{RunId(1), {}}, {RunId(1), ModelVersion(1)}, {RunId(1), ModelVersion(2)}}));
}

TEST_F(Journal, WhoseMetricWasNotFiniteStaysKnown) {
  ASSERT_TRUE(journal->create_run(full_run_row()).ok());
  ASSERT_TRUE(journal->open_attempt(attempt_row(1, 1, 1)).ok());
  CommitRow row = commit_row(1, 1);
  const SiteId site = row.record.contributors.entries().begin()->first;
  round::Contribution reports = *row.record.contributors.find(site);
  reports.metrics = {{"loss", std::nan("")}, {"seen", 4}};
  row.record.contributors.clear();
  ASSERT_TRUE(row.record.contributors.add(reports).ok());
  ASSERT_TRUE(journal->commit(row).ok());
  crash_and_reopen();
  const CommitRow read = journal->commit_of(RunId(1), RoundId(1)).value();
  const round::Metrics metrics = read.record.contributors.find(site)->metrics;
  EXPECT_EQ(metrics.at("seen"), 4);
  EXPECT_TRUE(std::isnan(metrics.at("loss")));
}

TEST_F(Journal, OutcomesForEverySite) {
  ASSERT_TRUE(journal->create_run(full_run_row()).ok());
  const auto outcome = [&](std::uint64_t round, std::uint32_t site, std::string_view update) {
    return journal->outcome(RunId(1), RoundId(round), SiteId(site), digest_of(update)).value();
  };
  EXPECT_EQ(journal->outcome(RunId(4), RoundId(1), SiteId(1), {}).error().code, Code::kNotFound);
  EXPECT_EQ(outcome(1, 1, "u1"), Outcome::kPending);
  ASSERT_TRUE(journal->open_attempt(attempt_row(1, 1, 1)).ok());
  EXPECT_EQ(outcome(1, 1, "u1"), Outcome::kPending);
  ASSERT_TRUE(journal->commit(commit_row(1, 1)).ok());
  EXPECT_EQ(outcome(1, 1, "u1"), Outcome::kCounted);
  EXPECT_EQ(outcome(1, 1, "another"), Outcome::kLate);
  EXPECT_EQ(outcome(1, 2, "u2"), Outcome::kRefused);
  EXPECT_EQ(outcome(1, 3, "u3"), Outcome::kLate) << "refused, but not for what it sent";
  EXPECT_EQ(outcome(1, 4, "u4"), Outcome::kLate);
  EXPECT_EQ(outcome(2, 1, "u1"), Outcome::kPending);
  ASSERT_TRUE(journal->set_run_status(RunId(1), RunStatus::kDone, "").ok());
  EXPECT_EQ(outcome(2, 1, "u1"), Outcome::kLate);
}

// The whole sequence with a crash at every operation: reported changes are there, and nothing is half done.
TEST_F(Journal, ACrashAtAnyOperationKeepsWhatWasReported) {
  for (const Unsynced unsynced : {Unsynced::kLost, Unsynced::kKept, Unsynced::kTorn}) {
    bool finished = false;
    for (std::uint64_t n = 0; !finished; ++n) {
      MemoryFileSystem disk;
      ASSERT_TRUE(disk.make_folder("/c").ok());
      int done = 0;
      disk.fail_at(n, Fault::kCrash);
      {
        Result<std::unique_ptr<CoordinatorJournal>> opened = CoordinatorJournal::open(disk, kJournalPath);
        if (opened.ok()) {
          CoordinatorJournal& j = **opened;
          const auto step = [&](bool ok) { return ok ? ++done > 0 : false; };
          finished = step(j.create_run(full_run_row()).ok()) && step(j.open_attempt(attempt_row(1, 1, 1)).ok()) &&
                     step(j.commit(commit_row(1, 1)).ok()) && step(j.open_attempt(attempt_row(2, 1, 2)).ok());
          disk.restart(unsynced, n + 1);  // before the journal closes: nothing more of it may reach the disk
        } else {
          disk.restart(unsynced, n + 1);
        }
      }
      Result<std::unique_ptr<CoordinatorJournal>> again = CoordinatorJournal::open(disk, kJournalPath);
      ASSERT_TRUE(again.ok()) << "operation " << n << ": " << again.error().message;
      if (done >= 1) ASSERT_TRUE((*again)->run(RunId(1)).ok()) << n;
      const std::optional<round::AttemptRecord> attempt = (*again)->last_attempt(RunId(1)).value();
      const std::optional<CommitRow> commit = (*again)->last_commit(RunId(1)).value();
      if (done >= 2) ASSERT_TRUE(attempt.has_value()) << n;
      if (done >= 3) ASSERT_TRUE(commit.has_value()) << n;
      if (done >= 4) ASSERT_EQ(attempt->round, RoundId(2)) << n;
      if (commit) {
        EXPECT_EQ(commit->record.contributors, commit_row(1, 1).record.contributors) << n;
        EXPECT_EQ(commit->record.refusals.size(), 2u) << n;
      }
      ASSERT_LT(n, 2000u);
    }
  }
}

TEST_F(Journal, AfterAFailedCommitItAsksForARestart) {
  ASSERT_TRUE(journal->create_run(full_run_row()).ok());
  for (std::uint64_t n = 0; n < 20; ++n) {
    files.fail_at(n, Fault::kIo);
    const Result<Epoch> epoch = journal->next_epoch();
    files.clear_fault();
    if (epoch.ok()) break;
    EXPECT_EQ(epoch.error().code, Code::kUnavailable);
    reopen();
    EXPECT_TRUE(journal->run(RunId(1)).ok());
  }
  std::size_t failed_syncs = 0, full_disks = 0;
  for (std::uint64_t n = 0; n < 20; ++n) {
    files.fail_at(n, Fault::kNoSpace);
    const Result<Epoch> epoch = journal->next_epoch();
    files.clear_fault();
    if (epoch.ok()) break;
    // A full disk is temporary. After a failed fsync the disk's content is unknown, even if the disk was full.
    const bool of_a_sync = epoch.error().code == Code::kUnavailable;
    EXPECT_TRUE(of_a_sync || epoch.error().code == Code::kResourceExhausted) << epoch.error().message;
    EXPECT_EQ(journal->next_epoch().ok(), !of_a_sync) << "operation " << n;
    EXPECT_EQ(journal->runs().ok(), !of_a_sync) << "a status that may be another on the disk";
    EXPECT_EQ(journal->run(RunId(1)).ok(), !of_a_sync);
    (of_a_sync ? failed_syncs : full_disks) += 1;
    reopen();
  }
  EXPECT_GT(failed_syncs, 0u);
  EXPECT_GT(full_disks, 0u);
}

// The same on a real disk, with a real process that ends without closing anything.
TEST(JournalOnDisk, AKilledProcessLosesNothing) {
  const TemporaryFolder folder;
  const std::string path = join_path(folder.path(), "journal.db");
  const pid_t child = ::fork();
  if (child == 0) {
    PosixFileSystem files;
    Result<std::unique_ptr<CoordinatorJournal>> journal = CoordinatorJournal::open(files, path);
    bool ok = journal.ok() && (*journal)->create_run(full_run_row()).ok();
    for (std::uint64_t round = 1; ok && round <= 20; ++round) {
      ok = (*journal)->open_attempt(attempt_row(round, 1, round)).ok() && (*journal)->commit(commit_row(round, 1)).ok();
    }
    ::_exit(ok ? 0 : 1);
  }
  int status = -1;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  ASSERT_EQ(status, 0);
  PosixFileSystem files;
  auto journal = CoordinatorJournal::open(files, path).value();
  EXPECT_EQ((*journal->last_commit(RunId(1)))->record.round, RoundId(20));
  // A copy of the folder taken while the journal is open holds the same rows.
  const TemporaryFolder copy;
  std::filesystem::copy(folder.path(), copy.path(),
                        std::filesystem::copy_options::recursive | std::filesystem::copy_options::overwrite_existing);
  auto copied = CoordinatorJournal::open(files, join_path(copy.path(), "journal.db")).value();
  EXPECT_EQ(copied->commits(RunId(1), RoundId(1), 100)->size(), 20u);
  EXPECT_FALSE(CoordinatorJournal::open(files, path).ok());
}

}  // namespace
}  // namespace fluvial::store
