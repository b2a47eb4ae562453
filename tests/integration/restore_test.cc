// A coordinator's folder that was restored from a backup, by the steps of docs/operations/backup.md.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <filesystem>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using testing::HasSubstr;

constexpr std::uint64_t kFork = 2;  // the last round of the backup

class RestoreTest : public FederationTest {
 protected:
  // Three sites below an aggregator have committed two rounds when the backup is made, and two more after it; the fifth
  // is open. Then the coordinator's machine is lost.
  void live(std::vector<std::string> of_aggregator = {}) {
    cli::FederationShape shape{.sites = 3, .aggregators = 1};
    shape.arguments["aggregator"] = std::move(of_aggregator);
    start(std::move(shape));
    RoundGate& third = hold_from(kFork + 1);
    fifth_ = &hold_from(kFork + 3);
    for (std::uint64_t i = 1; i <= 3; ++i) {
      add_worker(i, [&third, fifth = fifth_, train = bench_train(i)](
                        const local::Task& task, std::span<const float> base, std::span<float> local) {
        third.wait_at(task.round.value());
        fifth->wait_at(task.round.value());
        return train(task, base, local);
      });
    }
    round::Plan wanted = plan(8);
    wanted.participants_min = wanted.quorum = 2;
    wanted.soft_deadline = std::chrono::seconds(10);  // a round of the backup was open with a site that is away later
    run_ = start_run(wanted, 20'000);
    wait_committed(run_, kFork);
    third.wait_arrival(kFork + 1, 3);
    federation_->kill("coordinator");
    copy_folder(folder(), backup());
    ASSERT_TRUE(federation_->restart("coordinator").ok());
    ASSERT_TRUE(federation_->wait_connected("sites_connected", 3).ok());  // or a round goes without the last
    third.open();
    wait_committed(run_, kFork + 2);
    fifth_->wait_arrival(kFork + 3, 3);
    for (std::uint64_t round = kFork + 1; round <= kFork + 3; ++round) note_undone(run_, round, kFork);
    federation_->kill("coordinator");
  }
  std::string folder() const { return folder_.file("coordinator"); }
  std::string backup() const { return folder_.file("backup"); }
  void put_back() {
    std::filesystem::rename(folder(), folder_.file("lost"));
    copy_folder(backup(), folder());
  }
  CommandRun mark_restored() {
    return run_fluvial(*supervisor_, folder_, {"coordinator", "--data-dir", folder(), "--restored"});
  }
  value history() {
    const auto status = federation_->admin().get("/v1/status");
    EXPECT_TRUE(status.ok()) << status.error().message;
    return status.ok() ? status->as_object().at("history") : value();
  }
  void open_gates() { fifth_->open(); }
  std::uint64_t run_ = 0;
  RoundGate* fifth_ = nullptr;
};

TEST_F(RestoreTest, ARestoredBackupGoesOnFromItsLastCommit) {
  ASSERT_NO_FATAL_FAILURE(live());
  federation_->kill("site-3");  // it is away during the restore
  open_gates();                 // the others make their updates of the fifth round durable, and nobody takes them
  for (std::size_t i = 1; i <= 2; ++i) {
    wait_status(i, [](const value& status) { return cli::count_member(status, "pending_round") == kFork + 3; });
  }
  put_back();
  const CommandRun marked = mark_restored();
  ASSERT_EQ(marked.exit_status, 0) << marked.output;
  EXPECT_THAT(marked.output, HasSubstr("a new history begins"));
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_committed(run_, kFork + 2);
  ASSERT_TRUE(federation_->restart("site-3").ok());
  wait_state(run_, "done");
  expect_exact(run_, 8);
  wait_log("site-3", "another history of the federation");  // also when the run was over by then

  const value told = history();
  EXPECT_EQ(cli::count_member(told, "restores"), 1U);
  std::map<std::string, std::set<std::uint64_t>> decided;
  std::map<std::string, std::set<std::uint64_t>> waited;
  for (const value& one : cli::array_member(told, "lost")) {
    auto& rounds = cli::text_member(one, "update") == "waited" ? waited : decided;
    rounds[cli::text_member(one, "site")].insert(cli::count_member(one, "round"));
  }
  for (const char* site : {"site-1", "site-2", "site-3"}) {
    EXPECT_THAT(decided[site], testing::ElementsAre(kFork + 2)) << site;
  }
  EXPECT_THAT(waited["site-1"], testing::ElementsAre(kFork + 3));
  EXPECT_THAT(cli::array_member(told, "ahead"), testing::IsEmpty());
  for (std::size_t i = 1; i <= 2; ++i) {
    const value status = wait_status(i, [](const value& now) { return cli::count_member(now, "pending_round") == 0; });
    EXPECT_GE(outcomes(status, "late"), 1U) << "the submission of the fifth round";
  }
}

TEST_F(RestoreTest, AnOlderCopyThatIsStartedAsItIsSaysWhatToDo) {
  ASSERT_NO_FATAL_FAILURE(live({"--parentless-max-ms", "200"}));  // the sites come for leases of their own
  put_back();
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_log("coordinator", "a member knows more than the journal");
  wait_log("coordinator", "--restored");
  wait_log("site-1", "--restored");
  const auto refused = cli::retry(std::chrono::seconds(60),
                                  [&]() -> Result<bool> { return !cli::array_member(history(), "ahead").empty(); });
  EXPECT_TRUE(refused.ok() && *refused);
  EXPECT_EQ(committed(run_).size(), kFork) << "nothing is committed on top of it";
  const CommandRun running = mark_restored();
  EXPECT_NE(running.exit_status, 0) << "while a coordinator runs in it";

  federation_->kill("coordinator");
  const CommandRun marked = mark_restored();
  ASSERT_EQ(marked.exit_status, 0) << marked.output;
  open_gates();
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_state(run_, "done");
  expect_exact(run_, 8);
}

TEST_F(RestoreTest, AJournalRestoredAloneRemovesNoModel) {
  ASSERT_NO_FATAL_FAILURE(live());
  open_gates();
  for (const char* name : {"journal.sqlite", "journal.sqlite-wal"}) {
    std::filesystem::remove(folder() + "/" + name);
    if (std::filesystem::exists(backup() + "/" + name)) {
      std::filesystem::copy(backup() + "/" + name, folder() + "/" + name);
    }
  }
  const std::string models = folder() + "/models/run-" + std::to_string(run_);
  const std::string newest = fmt::format("{}/round-{}.safetensors", models, kFork + 2);
  ASSERT_TRUE(std::filesystem::exists(newest));
  const CommandRun refused =
      run_fluvial(*supervisor_, folder_, {"coordinator", "--data-dir", folder(), "--metrics-listen", "off"});
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.output, HasSubstr("--restored"));
  EXPECT_TRUE(std::filesystem::exists(newest));

  const CommandRun marked = mark_restored();
  ASSERT_EQ(marked.exit_status, 0) << marked.output;
  EXPECT_THAT(marked.output, HasSubstr("set aside"));
  EXPECT_FALSE(std::filesystem::exists(newest));
  std::size_t aside = 0;
  for (const auto& entry : std::filesystem::recursive_directory_iterator(folder() + "/models")) {
    aside += entry.path().filename() == std::filesystem::path(newest).filename() ? 1 : 0;
  }
  EXPECT_EQ(aside, 1U);
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_state(run_, "done");
  expect_exact(run_, 8);
}

}  // namespace
}  // namespace fluvial::integration
