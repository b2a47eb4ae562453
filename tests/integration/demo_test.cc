// `fluvial demo` as a person runs it: its figures, and that it leaves nothing behind however it ends.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <csignal>

#include "core/store/file_system.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using ::testing::HasSubstr;

class DemoTest : public ::testing::Test {
 protected:
  // A long demo in a folder of its own, once its first round is committed.
  cli::ProcessId start_long_demo() {
    const auto process = supervisor_->spawn(
        fluvial_spec(folder_, "demo", {"demo", "--rounds", "100000", "--work-dir", folder_.file("work")}));
    EXPECT_TRUE(process.ok()) << process.error().message;
    const auto began = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
      return cli::tail_of(folder_.file("demo.log"), 3).find("round ") != std::string::npos;
    });
    EXPECT_TRUE(began.ok() && *began) << cli::tail_of(folder_.file("demo.log"), 20);
    return *process;
  }
  void expect_nothing_left() {
    const auto gone = cli::retry(std::chrono::seconds(30), [&]() -> Result<bool> {
      return processes_that_mention(folder_.file("work")).empty();
    });
    EXPECT_TRUE(gone.ok() && *gone);
  }
  // A small demo whose nodes are killed; its figures.
  cli::json::value expect_no_trace(const std::vector<std::string>& how) {
    std::vector<std::string> arguments{"demo", "--kill", "--sites", "2", "--aggregators", "1"};
    arguments.insert(arguments.end(), {"--json", folder_.file("demo.json")});
    arguments.insert(arguments.end(), how.begin(), how.end());
    const CommandRun ran = run_fluvial(*supervisor_, folder_, arguments);
    EXPECT_EQ(ran.exit_status, 0) << ran.output;
    EXPECT_THAT(ran.output,
                ::testing::AllOf(HasSubstr("kill -9 aggregator-1"), HasSubstr("kill -9 coordinator"),
                                 HasSubstr("the same model, bit for bit"), HasSubstr("updates, sites to aggregators"),
                                 HasSubstr("sums, aggregators to the coordinator")));
    store::PosixFileSystem files;
    const Result<Buffer> text = store::read_file(files, folder_.file("demo.json"), 1 << 20);
    if (!text.ok()) return {};
    auto figures = cli::parse_json(as_text(text->span()), "demo.json").value();
    EXPECT_EQ(cli::array_member(figures, "killed").size(), 2U);
    EXPECT_EQ(cli::text_member(figures, "model_sha256"), cli::text_member(figures, "disturbed_model_sha256"));
    return figures;
  }

  // Of a demo with one slow site.
  cli::json::value figures_of(const std::vector<std::string>& how, const std::string& unit) {
    std::vector<std::string> arguments{"demo", "--json", folder_.file("demo.json")};
    arguments.insert(arguments.end(), how.begin(), how.end());
    const CommandRun ran = run_fluvial(*supervisor_, folder_, arguments);
    EXPECT_EQ(ran.exit_status, 0) << ran.output;
    EXPECT_THAT(ran.output, HasSubstr(unit + "s in "));
    store::PosixFileSystem files;
    const Result<Buffer> text = store::read_file(files, folder_.file("demo.json"), 1 << 20);
    return text.ok() ? cli::parse_json(as_text(text->span()), "demo.json").value() : cli::json::value();
  }

  cli::WorkFolder folder_ = std::move(cli::WorkFolder::open("", false, "test")).value();
  std::unique_ptr<cli::Supervisor> supervisor_ = std::move(cli::Supervisor::create(std::chrono::seconds(20))).value();
};

TEST_F(DemoTest, TheFiguresFit) {
  const CommandRun ran =
      run_fluvial(*supervisor_, folder_, {"demo", "--rounds", "3", "--seed", "2", "--json", folder_.file("demo.json")});
  ASSERT_EQ(ran.exit_status, 0) << ran.output;
  EXPECT_THAT(ran.output, HasSubstr("round 3/3  4/4 sites"));
  EXPECT_THAT(ran.output, ::testing::Not(HasSubstr("\033"))) << "plain lines into a pipe";
  store::PosixFileSystem files;
  const Buffer text = store::read_file(files, folder_.file("demo.json"), 1 << 20).value();
  const auto figures = cli::parse_json(as_text(text.span()), "demo.json").value();
  EXPECT_EQ(cli::count_member(figures, "rounds_committed"), 3U);
  EXPECT_EQ(cli::count_member(figures, "sites"), 4U);
  EXPECT_EQ(cli::count_member(figures, "aggregators"), 2U);
  EXPECT_EQ(cli::count_member(figures, "late_updates"), 0U);
  EXPECT_EQ(cli::text_member(figures, "codec"), "int8");
  const double accuracy = cli::number_member(figures, "test_accuracy", -1);
  EXPECT_GT(accuracy, 0.3);
  EXPECT_LE(accuracy, 1.0);
  EXPECT_GT(cli::number_member(figures, "central_test_accuracy", -1), 0.3);
  EXPECT_GT(cli::count_member(figures, "bytes_up_total"), 0U);
  EXPECT_GT(cli::count_member(figures, "bytes_up_fp32_equivalent"), 3 * cli::count_member(figures, "bytes_up_total"));
  const std::string digest = cli::text_member(figures, "model_sha256");
  EXPECT_EQ(digest.size(), 64U);
  const auto& sites = cli::array_member(figures, "site_model_sha256");
  ASSERT_EQ(sites.size(), 4U);
  for (const auto& site : sites) EXPECT_EQ(std::string(site.as_string()), digest);
}

TEST_F(DemoTest, ASlowSitesUpdatesEnterLaterRounds) {
  const cli::json::value figures = figures_of(
      {"--rounds", "12", "--sites", "3", "--aggregators", "1", "--slow-ms", "400", "--late", "next"}, "round");
  EXPECT_GT(cli::count_member(figures, "late_updates"), 0U);
  EXPECT_GT(cli::count_member(figures, "old_updates"), 0U);
  EXPECT_LE(cli::count_member(figures, "contributions"), 36U);
}

TEST_F(DemoTest, WindowsDoNotWaitForASlowSite) {
  const cli::json::value figures = figures_of(
      {"--rounds", "6", "--sites", "3", "--aggregators", "1", "--slow-ms", "400", "--mode", "async"}, "window");
  EXPECT_EQ(cli::count_member(figures, "late_updates"), 0U) << "nobody is late for a window";
  EXPECT_GE(cli::count_member(figures, "contributions"), 12U);
  EXPECT_EQ(cli::text_member(figures, "late"), "next");
  EXPECT_GT(cli::number_member(figures, "test_accuracy", -1), 0.2);
}

TEST_F(DemoTest, WhatDoesNotFitTogetherIsSaidBeforeAnythingStarts) {
  const CommandRun ran = run_fluvial(*supervisor_, folder_, {"demo", "--mode", "async", "--late", "residual"});
  EXPECT_EQ(ran.exit_status, 2);
  EXPECT_THAT(ran.output,
              ::testing::AllOf(HasSubstr("late = 'residual': expected next"), ::testing::Not(HasSubstr("--"))));
}

TEST_F(DemoTest, WhatIsExportedForAServiceIsNotTheDemos) {
  const std::vector<std::vector<std::string>> commands = {
      {"demo", "--rounds", "1"},
      {"bench", "tree", "--rounds", "1", "--params", "1000", "--no-bound"},
      {"local", "--until-eof"}};
  for (const std::vector<std::string>& command : commands) {
    std::vector<std::string> arguments = command;
    arguments.insert(arguments.end(), {"--sites", "2", "--aggregators", "1"});
    cli::ProcessSpec spec = fluvial_spec(folder_, "exported-" + command.front(), std::move(arguments));
    std::vector<std::string> launcher = {"/usr/bin/env"};
    for (const char* name : {"DATA_DIR", "ADMIN_SOCKET", "WORKER_SOCKET", "CONFIG", "LISTEN", "COORDINATOR"}) {
      launcher.push_back(fmt::format("FLUVIAL_{}=/proc/of-a-service", name));
    }
    spec.argv.insert(spec.argv.begin(), launcher.begin(), launcher.end());
    const auto process = supervisor_->spawn(std::move(spec));
    ASSERT_TRUE(process.ok()) << process.error().message;
    const int status = supervisor_->signal_and_wait(*process, 0);
    const std::string said = cli::tail_of(folder_.file("exported-" + command.front() + ".log"), 20);
    EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << said;
    EXPECT_EQ(said.find("of-a-service"), std::string::npos) << said;
  }
}

TEST_F(DemoTest, KilledNodesLeaveNoTraceInTheModel) { expect_no_trace({"--rounds", "6"}); }

TEST_F(DemoTest, NorInThatOfTheConvolutionalNetwork) {
  const auto figures = expect_no_trace({"--model", "cnn", "--rounds", "6", "--local-steps", "2"});
  EXPECT_EQ(cli::text_member(figures, "model"), "cnn");
  EXPECT_GT(cli::number_member(figures, "test_accuracy", -1), 0.05);
}

TEST_F(DemoTest, CtrlCEndsEverything) {
  const cli::ProcessId demo = start_long_demo();
  EXPECT_GE(processes_that_mention(folder_.file("work")).size(), 12U) << "coordinator, aggregators, sites, workers";
  const int status = supervisor_->signal_and_wait(demo, SIGINT);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_THAT(cli::tail_of(folder_.file("demo.log"), 3), HasSubstr("interrupted"));
  expect_nothing_left();
}

TEST_F(DemoTest, WithAConsoleItTrainsOnUntilItIsLeft) {
  const auto demo = supervisor_->spawn(fluvial_spec(folder_, "demo",
                                                    {"demo", "--no-open", "--rounds", "1", "--sites", "2",
                                                     "--aggregators", "0", "--work-dir", folder_.file("work")}));
  ASSERT_TRUE(demo.ok()) << demo.error().message;
  const auto log = [this] { return cli::tail_of(folder_.file("demo.log"), 100); };
  const auto second = cli::retry(std::chrono::seconds(60),
                                 [&]() -> Result<bool> { return log().find("run 2 is over") != std::string::npos; });
  EXPECT_TRUE(second.ok() && *second) << log();
  EXPECT_THAT(log(), ::testing::ContainsRegex("http://127.0.0.1:[0-9]+/[?]key=[0-9a-f]{64}"));
  const int status = supervisor_->signal_and_wait(*demo, SIGINT);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0) << status << log();
  expect_nothing_left();
}

TEST_F(DemoTest, KilledItTakesItsChildrenAlong) {
  supervisor_->signal_and_wait(start_long_demo(), SIGKILL);
  expect_nothing_left();
}

TEST_F(DemoTest, AChildThatDiesIsNamedAndEndsIt) {
  const cli::ProcessId demo = start_long_demo();
  const std::vector<int> victims = processes_that_mention(folder_.file("work/site-2/edge.toml"));
  ASSERT_EQ(victims.size(), 1U);
  ::kill(victims[0], SIGKILL);
  const int status = supervisor_->signal_and_wait(demo, 0);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 1) << status;
  EXPECT_THAT(cli::tail_of(folder_.file("demo.log"), 20), HasSubstr("site-2 was killed by signal 9"));
  expect_nothing_left();
}

}  // namespace
}  // namespace fluvial::integration
