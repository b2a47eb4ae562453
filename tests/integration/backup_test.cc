// fluvial backup of a federation that works, and fluvial restore, by the steps of docs/operations/backup.md.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <string>
#include <vector>

#include "core/store/journal.h"
#include "core/store/model_store.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using testing::HasSubstr;

class BackupTest : public FederationTest {
 protected:
  BackupTest() { std::ofstream(passphrase()) << "correct horse battery staple\n"; }
  CommandRun fluvial(std::vector<std::string> arguments) {
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  // What the command says with --json.
  value back_up() {
    const CommandRun made =
        fluvial({"backup", backup(), "--data-dir", data_dir(), "--passphrase-file", passphrase(), "--json"});
    EXPECT_EQ(made.exit_status, 0) << made.output;
    const auto answer = cli::parse_json(made.output, "the backup's answer");
    EXPECT_TRUE(answer.ok()) << made.output;
    return answer.ok() ? *answer : value();
  }
  CommandRun restore(const std::string& to) {
    return fluvial({"restore", backup(), "--data-dir", to, "--passphrase-file", passphrase()});
  }
  static std::uint64_t round_of(const value& made) {
    const auto& runs = cli::array_member(made, "runs");
    return runs.empty() ? 0 : cli::count_member(runs.front(), "round");
  }
  value status() {
    const auto status = federation_->admin().get("/v1/status");
    EXPECT_TRUE(status.ok()) << status.error().message;
    return status.ok() ? *status : value();
  }
  std::string data_dir() const { return folder_.file("coordinator"); }
  std::string backup() const { return folder_.file("backup"); }
  std::string passphrase() const { return folder_.file("passphrase"); }
};

// Backups are made while rounds are committed, the federation goes on, and the coordinator's machine is lost.
TEST_F(BackupTest, AFederationGoesOnFromABackupThatWasMadeWhileItWorked) {
  start(3, 1);
  RoundGate& sixth = hold_from(6);
  RoundGate& ninth = hold_from(9);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    add_worker(i, [&sixth, &ninth, train = bench_train(i)](const local::Task& task, std::span<const float> base,
                                                           std::span<float> local) {
      sixth.wait_at(task.round.value());
      ninth.wait_at(task.round.value());
      return train(task, base, local);
    });
  }
  const std::uint64_t run = start_run(plan(12), 20'000);
  wait_committed(run, 1);
  const value first = back_up();
  const value last = back_up();
  const std::uint64_t fork = round_of(last);
  EXPECT_GE(round_of(first), 1U);
  EXPECT_GE(fork, round_of(first));
  EXPECT_LE(fork, 5U);
  EXPECT_GE(cli::count_member(last, "models_kept"), round_of(first) + 1) << "they were there already";
  EXPECT_EQ(cli::text_member(status(), "last_backup"), cli::text_member(last, "created_at"));

  sixth.open();
  wait_committed(run, 8);
  ninth.wait_arrival(9, 3);
  for (std::uint64_t round = fork + 1; round <= 9; ++round) note_undone(run, round, fork);
  federation_->kill("coordinator");
  std::filesystem::remove_all(data_dir());

  const CommandRun checked = fluvial({"restore", backup(), "--check"});
  EXPECT_EQ(checked.exit_status, 0) << checked.output;
  const CommandRun restored = restore(data_dir());
  ASSERT_EQ(restored.exit_status, 0) << restored.output;
  EXPECT_THAT(restored.output, HasSubstr("fluvial coordinator --data-dir " + data_dir() + " --restored"));
  const CommandRun early = fluvial({"coordinator", "--data-dir", data_dir(), "--metrics-listen", "off"});
  EXPECT_NE(early.exit_status, 0);
  EXPECT_THAT(early.output, HasSubstr("--restored")) << "it does not start before that";
  const CommandRun marked = fluvial({"coordinator", "--data-dir", data_dir(), "--restored"});
  ASSERT_EQ(marked.exit_status, 0) << marked.output;
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  ninth.open();
  wait_state(run, "done");
  expect_exact(run, 12);
  EXPECT_EQ(cli::count_member(cli::member(status(), "history"), "restores"), 1U);
}

// Each round removes the model before it: the copy of the journal and the models are never of one moment by chance.
TEST_F(BackupTest, ModelsThatAreSweptMeanwhileAreInEveryBackup) {
  start(2, 0);
  add_workers();
  round::Plan wanted = plan(1'000'000);
  wanted.models_kept = 1;
  wanted.optimizer = round::parse_server_optimizer("fedavgm").value();
  const std::uint64_t run = start_run(wanted, 100'000);
  store::PosixFileSystem files;
  std::uint64_t before = 0;
  for (int i = 1; i <= 3; ++i) {
    wait_committed(run, before + 2);
    const std::uint64_t round = round_of(back_up());
    EXPECT_GT(round, before);
    before = round;
    const std::string to = folder_.file(fmt::format("restored-{}", i));
    const CommandRun restored = restore(to);
    ASSERT_EQ(restored.exit_status, 0) << restored.output;
    const auto journal = store::CoordinatorJournal::open(files, to + "/journal.sqlite");
    ASSERT_TRUE(journal.ok()) << journal.error().message;
    const auto last = (*journal)->last_commit(RunId(run)).value();
    ASSERT_TRUE(last.has_value());
    EXPECT_EQ(last->record.round, RoundId(round));
    const auto models = store::ModelStore::open(files, to + "/models").value();
    const auto model = models.load({RunId(run), ModelVersion(round)}, last->record.model.digest);
    EXPECT_TRUE(model.ok()) << model.error().message;
    const auto state = models.load_optimizer(last->optimizer, 100'000);
    EXPECT_TRUE(state.ok()) << state.error().message;
  }
}

TEST_F(BackupTest, AStoppedCoordinatorIsBackedUpAndMovesToAnotherFolder) {
  start(1, 0);
  add_workers();
  const std::uint64_t run = start_run(plan(2), 1'000);
  wait_state(run, "done");
  federation_->kill("coordinator");
  const value made = back_up();
  EXPECT_EQ(cli::bool_member(made, "coordinator_runs"), false);
  EXPECT_EQ(round_of(made), 2U);
  std::filesystem::rename(data_dir(), folder_.file("lost"));
  ASSERT_EQ(restore(data_dir()).exit_status, 0);
  ASSERT_EQ(fluvial({"coordinator", "--data-dir", data_dir(), "--restored"}).exit_status, 0);
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  const std::uint64_t next = start_run(plan(2), 1'000);
  EXPECT_GT(next, run);
  wait_state(next, "done");
  expect_exact(next, 2);
}

TEST_F(BackupTest, WhatIsMissingOrWrongIsSaidWithWhatToDo) {
  start(1, 0);
  const CommandRun without = fluvial({"backup", backup(), "--data-dir", data_dir()});
  EXPECT_EQ(without.exit_status, 2);
  EXPECT_THAT(without.output, HasSubstr("--passphrase-file"));
  EXPECT_FALSE(std::filesystem::exists(backup()));
  back_up();
  const CommandRun unopened = fluvial({"restore", backup(), "--data-dir", folder_.file("restored")});
  EXPECT_EQ(unopened.exit_status, 2);
  EXPECT_THAT(unopened.output, HasSubstr("--passphrase-file"));
  std::ofstream(passphrase()) << "another horse battery staple\n";
  const CommandRun wrong = restore(folder_.file("restored"));
  EXPECT_EQ(wrong.exit_status, 1);
  EXPECT_THAT(wrong.output, HasSubstr("wrong passphrase"));
  EXPECT_FALSE(std::filesystem::exists(folder_.file("restored")));
  const CommandRun over = fluvial({"restore", backup(), "--data-dir", data_dir(), "--passphrase-file", passphrase()});
  EXPECT_EQ(over.exit_status, 1);
  EXPECT_THAT(over.output, HasSubstr("not empty"));
  const CommandRun nothing =
      fluvial({"backup", folder_.file("other"), "--data-dir", folder_.file("nowhere"), "--plain-key"});
  EXPECT_EQ(nothing.exit_status, 1);
  EXPECT_THAT(nothing.output, HasSubstr("--data-dir"));
}

}  // namespace
}  // namespace fluvial::integration
