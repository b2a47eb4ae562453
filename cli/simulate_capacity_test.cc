// `fluvial simulate`: --capacity with figures of real runs, and seeds that run twice.
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <fstream>
#include <optional>

#include "cli/bench_result.h"
#include "cli/command.h"
#include "cli/json.h"
#include "core/base/testing.h"
#include "core/config/toml_file.h"

namespace fluvial::cli {
namespace {

using ::testing::HasSubstr;

constexpr std::string_view kScenario = R"(name = "four"
[tree]
depth = 0
sites = 4
[sites]
train_min_ms = 0
train_max_ms = 0
[workload]
sized = true
values = 1000000
tensors = 1
[compute]
cores = 2
[plan]
rounds = 3
participants.min = 4
participants.quorum = 4
[faults]
until_ms = 0
[limits]
progress_rounds = 0
)";
constexpr std::string_view kBench = R"({"sites": 4, "aggregators": 0, "tiers": 1, "params": 1000000, "codec": "fp32",
 "rounds": 10, "round_seconds": [0.3, 0.1, 0.2], "bytes_up_per_site_round": 4000000, "bytes_up_root_round": 16000000,
 "bytes_down_root_round": 16000000,
 "processes": [{"role": "coordinator", "cpu_seconds": 0.5}, {"role": "site", "cpu_seconds": 0.4},
  {"role": "site", "cpu_seconds": 0.4}, {"role": "site", "cpu_seconds": 0.4}, {"role": "site", "cpu_seconds": 0.4},
  {"role": "worker", "cpu_seconds": 0.1}, {"role": "worker", "cpu_seconds": 0.1},
  {"role": "worker", "cpu_seconds": 0.1}, {"role": "worker", "cpu_seconds": 0.1}]})";

class SimulateCapacity : public testing::Test {
 protected:
  SimulateCapacity() {
    write("four.toml", kScenario);
    write("bench.json", kBench);
  }

  std::string file(const std::string& name) const { return folder_ / name; }
  void write(const std::string& name, std::string_view text) const { std::ofstream(file(name)) << text; }
  // The exit status; what it printed is in out_ and err_.
  int simulate(const std::vector<std::string>& more) {
    std::vector<std::string> arguments = {"simulate", file("four.toml"), "--capacity"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run(arguments);
  }
  int run(const std::vector<std::string>& arguments) {
    const Io io{.out = std::tmpfile(), .err = std::tmpfile()};
    store::PosixFileSystem files;
    const int status =
        run_command_line(arguments, io, [](const std::string&) { return std::optional<std::string>(); }, files);
    out_ = content_of(io.out);
    err_ = content_of(io.err);
    return status;
  }
  static std::string content_of(std::FILE* from) {
    std::string text;
    std::rewind(from);
    for (int c = std::fgetc(from); c != EOF; c = std::fgetc(from)) text += static_cast<char>(c);
    std::fclose(from);
    return text;
  }

  const TemporaryFolder folder_;
  std::string out_;
  std::string err_;
};

TEST_F(SimulateCapacity, SeedsRunTwiceWhereAskedFor) {
  write("small.toml", "name = \"small\"\n[plan]\nrounds = 1\n[faults]\nuntil_ms = 100\n");
  ASSERT_EQ(run({"simulate", file("small.toml"), "--seeds", "3"}), kDone) << err_;
  EXPECT_THAT(out_, testing::HasSubstr("small: 3 seeds, "));
  EXPECT_THAT(out_, testing::Not(testing::HasSubstr("twice")));
  ASSERT_EQ(run({"simulate", file("small.toml"), "--seeds", "3", "--again", "2"}), kDone) << err_;
  EXPECT_THAT(out_, testing::HasSubstr("small: 3 seeds, 2 of them twice, "));
  ASSERT_EQ(run({"simulate", file("small.toml"), "--seeds", "3", "--twice"}), kDone) << err_;
  EXPECT_THAT(out_, testing::HasSubstr("small: 3 seeds, 3 of them twice, "));
}

TEST_F(SimulateCapacity, SaysHowFarOffEachFigureIs) {
  ASSERT_EQ(simulate({"--against", file("bench.json"), "--json", file("out.json")}), kDone) << err_;
  EXPECT_THAT(out_, HasSubstr("AGAINST THE REAL RUN"));
  const auto text = config::read_text_file(file("out.json"));
  ASSERT_TRUE(text.ok());
  const auto result = parse_json(*text, "out.json");
  ASSERT_TRUE(result.ok());
  const json::value& against = member(*result, "against");
  const json::value& seconds = member(against, "round_seconds");
  EXPECT_DOUBLE_EQ(number_member(seconds, "measured", 0), 0.2) << "the median";
  const double predicted = number_member(seconds, "predicted", 0);
  EXPECT_GT(predicted, 0);
  EXPECT_DOUBLE_EQ(number_member(seconds, "off", 0), predicted / 0.2 - 1);
  EXPECT_NEAR(number_member(member(against, "site_up_bytes"), "off", 1), 0, 0.01);
  EXPECT_NEAR(number_member(member(against, "root_up_bytes"), "off", 1), 0, 0.01);
}

TEST_F(SimulateCapacity, TakesWhatWorkCostsFromRealRuns) {
  ASSERT_EQ(simulate({"--calibrate", file("bench.json"), "--json", file("out.json")}), kDone) << err_;
  EXPECT_THAT(err_, HasSubstr("calibrated: encode"));
  const auto text = config::read_text_file(file("out.json"));
  ASSERT_TRUE(text.ok());
  const auto result = parse_json(*text, "out.json");
  ASSERT_TRUE(result.ok());
  const json::value& compute = member(*result, "compute");
  // A site and its worker took half a second over ten rounds of a million values: 50 ns a value, with its bytes.
  const double site = number_member(compute, "encode_ns", 0) + 8 * number_member(compute, "byte_ns", 0);
  EXPECT_NEAR(site, 50 - 4, 2) << "two processes' starts are in it";
}

TEST_F(SimulateCapacity, RefusesToCompareWithAnotherTree) {
  std::string other(kBench);
  other.replace(other.find("\"sites\": 4"), 10, "\"sites\": 8");
  write("other.json", other);
  EXPECT_EQ(simulate({"--against", file("other.json")}), kUsage);
  EXPECT_THAT(err_, HasSubstr("8 sites, the scenario has 4"));
  write("none.json", "{}");
  EXPECT_EQ(simulate({"--against", file("none.json")}), kUsage);
  EXPECT_THAT(err_, HasSubstr("fluvial bench tree --json"));
}

}  // namespace
}  // namespace fluvial::cli
