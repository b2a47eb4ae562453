#include "cli/command.h"

#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <map>

#include "cli/command_test_support.h"
#include "core/base/testing.h"
#include "core/tree/version.h"

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::EndsWith;
using ::testing::HasSubstr;
using ::testing::Not;
using ::testing::StartsWith;

TEST(CommandLine, VersionAndHelpAreForStandardOutput) {
  const Ran version = run({"--version"});
  EXPECT_EQ(version.status, kDone);
  EXPECT_EQ(version.out, std::string("fluvial ") + tree::kVersion + "\n");
  const Ran help = run({"--help"});
  EXPECT_EQ(help.status, kDone);
  EXPECT_THAT(help.out,
              AllOf(HasSubstr("demo"), HasSubstr("enroll"), HasSubstr("rounds"), HasSubstr("fluvial token create")));
  EXPECT_THAT(help.out, ::testing::Not(HasSubstr("bench-worker")));
  const Ran create = run({"token", "create", "--help"});
  EXPECT_EQ(create.status, kDone);
  EXPECT_THAT(create.out, AllOf(HasSubstr("--weight-max"), HasSubstr("Example")));
  EXPECT_THAT(help.out, HasSubstr("Start here"));
  EXPECT_THAT(run({"rounds", "list", "--help"}).out, ::testing::Not(HasSubstr("Start here")));
}

struct Wrong {
  std::vector<std::string> arguments;
  std::vector<std::string> mentions;
};

void PrintTo(const Wrong& wrong, std::ostream* out) {
  for (const std::string& argument : wrong.arguments) *out << argument << ' ';
}

class WrongUsage : public ::testing::TestWithParam<Wrong> {};

TEST_P(WrongUsage, IsOneLineAndStatusTwo) {
  const Ran ran = run(GetParam().arguments);
  EXPECT_EQ(ran.status, kUsage);
  EXPECT_EQ(ran.out, "");
  EXPECT_EQ(lines_of(ran.err), 1U) << ran.err;
  EXPECT_THAT(ran.err, StartsWith("fluvial"));
  for (const std::string& mention : GetParam().mentions) EXPECT_THAT(ran.err, HasSubstr(mention));
}

INSTANTIATE_TEST_SUITE_P(
    All, WrongUsage,
    ::testing::Values(
        Wrong{
            {"status", "--admin", "http://fl.example.org:7402"},
            {"--admin", "\"http://fl.example.org:7402\": expected https://HOST:PORT (the coordinator's admin_listen)"}},
        Wrong{{"nodes", "list", "--admin", "https://fl.example.org"}, {"--admin", "expected https://HOST:PORT"}},
        Wrong{{"simulate", "--advise", "/nowhere/plan.toml", "--up", "50"},
              {"fluvial simulate: --up: \"50\": expected a rate such as 50mbit"}},
        Wrong{{"simulate", "--advise", "/nowhere/plan.toml", "--step", "abc"},
              {"fluvial simulate: --step: \"abc\": expected a duration such as 40ms or 1.2s"}},
        Wrong{{"health", "--admin", "https://fl.example.org:7402"}, {"--admin"}},
        Wrong{{"backup", "b", "--plain-key", "--admin", "https://fl.example.org:7402"},
              {"fluvial backup: ", "--admin"}},
        Wrong{{"deom"}, {"unknown command \"deom\"", "did you mean \"demo\"", "coordinator"}},
        Wrong{{"rounds", "wacth"}, {"fluvial rounds", "wacth", "did you mean \"watch\""}},
        Wrong{{"demo", "--ronds", "3"}, {"fluvial demo", "--ronds", "did you mean \"--rounds\""}},
        Wrong{{"demo", "--rounds", "many"}, {"--rounds", "\"many\"", "expected a whole number"}},
        Wrong{{"demo", "--rounds", "1", "--keep", "--rounds", "2"},
              {"fluvial demo: --rounds is there 2 times; give it"}},
        Wrong{{"demo", "--keep", "--keep", "--rounds", "0"}, {"--rounds", "\"0\""}},
        Wrong{{"demo", "--rounds", "0"}, {"--rounds", "\"0\"", "from 1 to"}}, Wrong{{"demo", "--rounds"}, {"--rounds"}},
        Wrong{{"demo", "--model", "resnet"}, {"--model", "resnet", "expected cnn or mlp or softmax"}},
        Wrong{{"demo", "--codec", "gzip"}, {"--codec", "gzip"}},
        Wrong{{"bench", "tree", "--codec", "int8:block=7"}, {"--codec", "block"}},
        Wrong{{"bench", "tree", "--codec", "powersgd", "--async-goal", "1"},
              {"fluvial bench tree: --async-goal does not go with --codec powersgd", "leave --async-goal out"}},
        Wrong{{"bench", "tree", "--codec", "onebit_adam", "--late-is-next"}, {"leave --late-is-next out"}},
        Wrong{{"local", "--set", "site.reductoin=direct"}, {"--set", "site.reductoin=direct", "ROLE.KEY=VALUE"}},
        Wrong{{"local", "--set", "reduction=direct"}, {"--set", "ROLE.KEY=VALUE"}},
        Wrong{{"bench", "asynchrony", "--plan", "async.goall = 2"}, {"--plan", "async.goall", "did you mean"}},
        Wrong{{"demo", "--work-dir", "/proc"}, {"--work-dir", "/proc", "empty"}},
        Wrong{{"token", "create"}, {"--name", "required"}},
        Wrong{{"token", "create", "--name", "Hospital A"}, {"--name", "\"Hospital A\"", "lower-case"}},
        Wrong{{"token", "create", "--name", "a", "--role", "king"}, {"--role", "king", "site or aggregator"}},
        Wrong{{"token", "create", "--name", "a", "--ttl", "5 bananas"}, {"bananas"}},
        Wrong{{"token", "create", "--name", "a", "--weight-max", "0"}, {"--weight-max"}},
        Wrong{{"enroll", "--token", "abc", "--data-dir", "/nowhere/x"}, {"enroll", "token"}},
        Wrong{{"enroll", "--token", "a", "--data-dir", "d", "--coordinator", "nonsense"},
              {"--coordinator", "host:port"}},
        Wrong{{"run", "start"}, {"PLAN"}}, Wrong{{"run", "start", "/nowhere/plan.toml"}, {"/nowhere/plan.toml"}},
        Wrong{{"rounds", "show", "newest"}, {"ROUND", "newest"}},
        Wrong{{"model", "export", "--round", "the newest", "x.safetensors"}, {"--round", "the newest", "latest"}},
        Wrong{{"completion"}, {"SHELL", "required"}},
        Wrong{{"completion", "csh"}, {"SHELL", "\"csh\"", "bash or zsh or fish"}},
        Wrong{{"nodes", "list", "extra"}, {"extra"}}, Wrong{{"coordinator"}, {"data_dir"}},
        Wrong{{"coordinator", "--data-dir", "/tmp/x", "--listen", "here"}, {"listen", "here"}}));

TEST(CommandLine, ACoordinatorThatNothingHelpsEndsWithStatusTwo) {
  const TemporaryFolder folder;
  std::filesystem::create_directory(folder / "identity");
  const std::string member = folder.path();
  const auto wrong = [](std::vector<std::string> more) {
    more.insert(more.begin(),
                {"coordinator", "--metrics-listen", "off", "--listen", "127.0.0.1:0", "--enrol-listen", "127.0.0.1:0"});
    const Ran ran = run(more);
    EXPECT_EQ(ran.status, kUsage) << ran.err;
    EXPECT_EQ(lines_of(ran.err), 1U) << ran.err;
    return ran.err;
  };
  EXPECT_THAT(wrong({"--data-dir", member}), HasSubstr("is a member's folder (it holds identity/)"));
  EXPECT_FALSE(std::filesystem::exists(folder / "ca")) << "no federation is founded";
  const std::string own = folder / "own";
  EXPECT_THAT(wrong({"--data-dir", own, "--admin-users", "no-such-user"}), HasSubstr("admin_users = 'no-such-user'"));
  EXPECT_THAT(wrong({"--data-dir", own, "--authority-key", "k.pem"}), HasSubstr("--authority-key = 'k.pem'"));
  EXPECT_THAT(wrong({"--data-dir", own, "--admin-socket", "/" + std::string(120, 'x')}), HasSubstr("--admin-socket"));
  EXPECT_FALSE(std::filesystem::exists(own));
}

TEST(CommandLine, NothingTypedPrintsHelpToStandardError) {
  const Ran ran = run({});
  EXPECT_EQ(ran.status, kUsage);
  EXPECT_THAT(ran.err, HasSubstr("fluvial demo"));
  EXPECT_EQ(run({"token"}).status, kUsage);
}

TEST(CommandLine, AWordBehindACommandIsNoCommandBesideIt) {
  const Ran ran = run({"doctor", "edge", "--data-dir", "/nowhere", "--json"});
  EXPECT_EQ(ran.status, kFailed);
  EXPECT_THAT(ran.out, AllOf(HasSubstr("\"role\": \"site\""), HasSubstr("not enrolled"))) << ran.err;
}

TEST(CommandLine, AVariableThatNamesTheFolderIsNamedWithIt) {
  const TemporaryFolder folder;
  const std::string file = folder / "edge.toml";
  std::ofstream(file) << "data_dir = \"" << folder / "mine" << "\"\ncoordinator = \"127.0.0.1:1\"\n";
  const std::map<std::string, std::string> exported = {{"FLUVIAL_DATA_DIR", folder / "other/"},
                                                       {"FLUVIAL_METRICS_LISTEN", "off"}};
  const Ran ran = run({"edge", "--config", file}, exported);
  EXPECT_EQ(ran.status, kFailed);
  EXPECT_THAT(ran.err, AllOf(HasSubstr(folder / "other"), HasSubstr("(data_dir is from FLUVIAL_DATA_DIR)")));
  const Ran typed = run({"edge", "--config", file, "--data-dir", folder / "other"}, exported);
  EXPECT_EQ(typed.status, kFailed);
  EXPECT_THAT(typed.err, AllOf(HasSubstr(folder / "other"), Not(HasSubstr("FLUVIAL_DATA_DIR"))));
}

TEST(CommandLine, WhatIsMissingStandsInTheFileThatEnrolmentLeft) {
  const TemporaryFolder folder;
  const auto hint = [&folder](const char* file) {
    return "; " + (folder / file) + " is there: give --config " + (folder / file) + "\n";
  };
  EXPECT_THAT(run({"edge", "--data-dir", folder.path()}).err, Not(HasSubstr("is there")));
  std::ofstream(folder / "edge.toml") << "coordinator = \"127.0.0.1:1\"\n";
  std::ofstream(folder / "aggregator.toml") << "coordinator = \"127.0.0.1:1\"\n";
  const Ran edge = run({"edge", "--data-dir", folder.path()});
  EXPECT_EQ(edge.status, kUsage);
  EXPECT_THAT(edge.err, AllOf(HasSubstr("coordinator is missing"), EndsWith(hint("edge.toml"))));
  EXPECT_THAT(run({"aggregator"}, {{"FLUVIAL_DATA_DIR", folder.path()}}).err, EndsWith(hint("aggregator.toml")));
  const Ran named = run({"edge", "--config", folder / "edge.toml"});
  EXPECT_THAT(named.err, AllOf(HasSubstr("data_dir is missing"), Not(HasSubstr("is there"))));
  const Ran wrong = run({"edge", "--data-dir", folder.path(), "--coordinator", "a:1", "--workers", "many"});
  EXPECT_THAT(wrong.err, AllOf(HasSubstr("--workers = 'many'"), Not(HasSubstr("is there"))));
}

TEST(CommandLine, AVariableOfTheAdminApiIsTheMatterOfItsCommandsAlone) {
  const TemporaryFolder folder;
  ::setenv("FLUVIAL_ADMIN", "http://fl.example.org:7402", 1);
  const Ran asked = run({"status"});
  const Ran elsewhere = run({"status", "--data-dir", folder.path()});
  const Ran health = run({"health", "--data-dir", folder.path()});
  const Ran backup = run({"backup", folder / "backup", "--plain-key", "--data-dir", folder / "nothing"});
  ::unsetenv("FLUVIAL_ADMIN");
  EXPECT_EQ(asked.status, kUsage);
  EXPECT_THAT(asked.err, HasSubstr("expected https://HOST:PORT"));
  EXPECT_THAT(elsewhere.err, HasSubstr("no coordinator answers at"));
  EXPECT_EQ(health.status, kFailed);
  EXPECT_THAT(health.err, HasSubstr("no process has been started with this data folder"));
  EXPECT_EQ(backup.status, kFailed);
  EXPECT_THAT(backup.err, HasSubstr(folder / "nothing"));
  EXPECT_THAT(run({"backup", "--help"}).out, AllOf(HasSubstr("--admin-socket"), Not(HasSubstr("--admin URL"))));
}

TEST(CommandLine, NoCoordinatorIsAFailureThatSaysWhereItLooked) {
  const Ran ran = run({"nodes", "list", "--admin-socket", "/nowhere/admin.sock"});
  EXPECT_EQ(ran.status, kFailed);
  EXPECT_EQ(lines_of(ran.err), 1U);
  EXPECT_THAT(ran.err,
              AllOf(StartsWith("fluvial nodes list: "), HasSubstr("/nowhere/admin.sock"), HasSubstr("--admin-socket")));
}

TEST(CommandLine, APlanIsCheckedBeforeAnyoneIsAsked) {
  const std::string path = ::testing::TempDir() + "bad-plan.toml";
  std::ofstream(path) << "name = \"x\"\nrounds = \"many\"\n";
  const Ran ran = run({"run", "start", path, "--admin-socket", "/nowhere/admin.sock"});
  EXPECT_EQ(ran.status, kUsage);
  EXPECT_THAT(ran.err, AllOf(HasSubstr(path), HasSubstr("rounds"), HasSubstr("many")));
  std::ofstream(path) << "name = \"x\"\n";
  const Ran no_model = run({"run", "start", path});
  EXPECT_EQ(no_model.status, kUsage);
  EXPECT_THAT(no_model.err, AllOf(HasSubstr("names no model"), HasSubstr("--model")));
  std::filesystem::remove(path);
}

}  // namespace
}  // namespace fluvial::cli
