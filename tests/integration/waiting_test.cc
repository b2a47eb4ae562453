// What a person is told while a run waits: by `fluvial status`, by the listings, and by whoever watches the run.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>

#include "core/base/testing.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using testing::AllOf;
using testing::HasSubstr;

class WaitingTest : public FederationTest {
 protected:
  std::vector<std::string> here(std::vector<std::string> arguments) const {
    arguments.insert(arguments.end(), {"--admin-socket", federation_->admin().place()});
    return arguments;
  }
  CommandRun fluvial(std::vector<std::string> arguments) {
    return run_fluvial(*supervisor_, folder_, here(std::move(arguments)));
  }
  // Begins to watch; output_of() is what it has said so far.
  cli::ProcessId watch(std::vector<std::string> further = {}) {
    std::vector<std::string> arguments{"rounds", "watch"};
    arguments.insert(arguments.end(), further.begin(), further.end());
    const auto process = supervisor_->spawn(fluvial_spec(folder_, "watch", here(arguments)));
    EXPECT_TRUE(process.ok());
    return process.ok() ? *process : cli::ProcessId{};
  }
  std::string output() const { return text_of_file(folder_.file("watch.log")); }
  void wait_output(const std::string& text) {
    const auto said = cli::retry(std::chrono::seconds(60),
                                 [&]() -> Result<bool> { return output().find(text) != std::string::npos; });
    EXPECT_TRUE(said.ok() && *said) << text << " is not in: " << output();
  }
  int exit_of(cli::ProcessId process) {
    const int status = supervisor_->signal_and_wait(process, 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : 128 + WTERMSIG(status);
  }
  // What is waited for of this node, once `wanted` is in its reason.
  value wait_for(const std::string& node, const std::string& wanted) {
    value found;
    const auto said = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
      FLUVIAL_ASSIGN(const value status, federation_->admin().get("/v1/status"));
      for (const value& wait : cli::array_member(status, "waits")) {
        if (cli::text_member(wait, "node") == node) found = wait;
      }
      return cli::text_member(found, "reason").find(wanted) != std::string::npos;
    });
    EXPECT_TRUE(said.ok() && *said) << node << ": " << cli::pretty(found);
    return found;
  }
  // A plan whose first failed attempt pauses the run.
  round::Plan impatient(std::uint64_t rounds) const {
    round::Plan wanted = plan(rounds);
    wanted.soft_deadline = std::chrono::seconds(3);
    wanted.hard_deadline = std::chrono::seconds(6);
    wanted.attempts_max = 1;
    return wanted;
  }
};

TEST_F(WaitingTest, ASiteWithoutAWorkerIsNamedByEverybodyWhoIsAsked) {
  start(2, 1);
  add_worker(1);
  const std::uint64_t run = start_run(plan(2), 1'000);
  const value wait = wait_for("site-2", "no worker attached");
  EXPECT_EQ(cli::text_member(wait, "severity"), "warning");
  const cli::ProcessId watching = watch();
  wait_output("site-2: no worker attached");
  EXPECT_THAT(fluvial({"status"}).output,
              AllOf(HasSubstr("site-2"), HasSubstr("no worker attached"), HasSubstr("-> start the training script")));
  EXPECT_THAT(fluvial({"run", "show"}).output, HasSubstr("no worker attached"));
  EXPECT_THAT(fluvial({"rounds", "show", "open"}).output,
              AllOf(HasSubstr("round 1 of run 1"), HasSubstr("no worker attached")));
  EXPECT_THAT(fluvial({"nodes", "list"}).output, HasSubstr("WORKERS"));
  add_worker(2);
  EXPECT_EQ(exit_of(watching), 0) << output();
  EXPECT_THAT(output(), HasSubstr("round 2/2"));
  wait_state(run, "done");
}

TEST_F(WaitingTest, APauseNamesTheSitesThatWereNotInAndWatchingCanEndWithIt) {
  start(2, 0);
  RoundGate& gate = hold_from(1);
  add_worker(1, gated(gate, 1));
  add_worker(2, gated(gate, 2));
  const std::uint64_t run = start_run(impatient(3), 1'000);
  const cli::ProcessId watching = watch({"--fail-on-pause"});
  gate.wait_arrival(1, 2);
  federation_->kill("site-2");
  wait_state(run, "paused");
  const value shown = *federation_->admin().get(fmt::format("/v1/runs/{}", run));
  const std::string reason = cli::text_member(shown, "reason");
  EXPECT_THAT(reason, AllOf(HasSubstr("no quorum after 1 attempt: 0 of 2 needed; site-1: "),
                            HasSubstr("; site-2: not connected since ")));
  EXPECT_EQ(exit_of(watching), 4) << output();
  EXPECT_THAT(output(), AllOf(HasSubstr("run 1 paused: round 1"), HasSubstr("site-2: not connected since ")));
  const CommandRun status = fluvial({"status"});
  EXPECT_THAT(status.output, AllOf(HasSubstr("paused"), HasSubstr("paused itself"), HasSubstr("site-2: not"),
                                   HasSubstr("fluvial run resume"), HasSubstr("#fluvialrunpauseditself")));
  gate.open();
}

TEST_F(WaitingTest, ALateSiteHasItsNameAndItsReasonInTheCommit) {
  start(3, 0);
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i);
  add_worker(3, gated(gate, 3));
  round::Plan wanted = plan(2);
  wanted.quorum = 2;
  wanted.soft_deadline = std::chrono::milliseconds(700);
  const std::uint64_t run = start_run(wanted, 1'000);
  const value second = wait_committed(run, 2);
  ASSERT_EQ(cli::array_member(second, "late_sites").size(), 1U) << cli::pretty(second);
  const value& late = cli::array_member(second, "late_sites")[0];
  EXPECT_EQ(cli::text_member(late, "name"), "site-3");
  EXPECT_NE(cli::text_member(late, "reason"), "");
  EXPECT_THAT(fluvial({"rounds", "show", "latest"}).output, HasSubstr("late          site-3: "));
  gate.open();
}

TEST_F(WaitingTest, WatchingOutlivesTheCoordinatorAndTellsEachRoundOnce) {
  start(2, 0);
  RoundGate& gate = hold_from(3);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(4), 1'000);
  const cli::ProcessId watching = watch();
  wait_output("round 2/4");
  gate.wait_arrival(3);
  federation_->kill("coordinator");
  wait_output("trying again for 300 s");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_output("the coordinator answers again");
  gate.open();
  EXPECT_EQ(exit_of(watching), 0) << output();
  for (const char* round : {"round 1/4", "round 2/4", "round 3/4", "round 4/4"}) {
    const std::string text = output();
    const std::size_t first = text.find(round);
    EXPECT_NE(first, std::string::npos) << round << ": " << text;
    EXPECT_EQ(text.find(round, first + 1), std::string::npos) << "twice: " << text;
  }
  wait_state(run, "done");
}

TEST_F(WaitingTest, TheExitStatusTellsStoppedAndGone) {
  start(1, 0);
  RoundGate& gate = hold_from(1);
  add_worker(1, gated(gate, 1));
  const std::uint64_t run = start_run(plan(4), 1'000);
  gate.wait_arrival(1);
  const cli::ProcessId watching = watch({"--retry-for", "0"});
  wait_output("round 1 open: 0 of 1 in");
  ASSERT_TRUE(federation_->admin().post(fmt::format("/v1/runs/{}/stop", run)).ok());
  EXPECT_EQ(exit_of(watching), 3) << output();
  EXPECT_THAT(output(), HasSubstr("run 1 stopped: by an administrator"));
  EXPECT_EQ(fluvial({"rounds", "watch"}).exit_status, 3) << "also when it is over already";
  gate.open();
  federation_->kill("coordinator");
  EXPECT_EQ(fluvial({"rounds", "watch", "--retry-for", "0"}).exit_status, 5);
  EXPECT_EQ(fluvial({"status"}).exit_status, 5);
}

TEST_F(WaitingTest, TheStatusScreenSaysWhenNothingIsWrong) {
  start(2, 1);
  add_workers();
  const std::uint64_t run = start_run(plan(1), 1'000);  // nobody is a straggler after one round
  wait_state(run, "done");
  const CommandRun status = fluvial({"status"});
  EXPECT_EQ(status.exit_status, 0);
  EXPECT_THAT(status.output,
              AllOf(HasSubstr("2 of 2 sites connected, 1 of 1 aggregators connected"),
                    HasSubstr("run 1 test  done  1 of 1 rounds committed"), HasSubstr("nothing is wrong")));
  federation_->kill("aggregator-1");
  const auto seen = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
    return fluvial({"status"}).output.find("aggregator-1 is away since ") != std::string::npos;
  });
  EXPECT_TRUE(seen.ok() && *seen);
  EXPECT_THAT(fluvial({"nodes", "list"}).output, HasSubstr("away since "));
  EXPECT_TRUE(cli::parse_json(fluvial({"status", "--json"}).output, "status").ok());
  EXPECT_THAT(fluvial({"rounds", "show", "open"}).output, HasSubstr("no round of run 1 is open"));
}

}  // namespace
}  // namespace fluvial::integration
