// A coordinator that keeps few rounds, and a site that was away while they were pruned.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <fstream>
#include <string>
#include <vector>

#include "core/base/testing.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using testing::HasSubstr;

class RetentionTest : public FederationTest {
 protected:
  std::vector<std::uint64_t> rounds(std::uint64_t run) {
    std::vector<std::uint64_t> numbers;
    const cli::json::array all = committed(run);
    for (const value& round : all) numbers.push_back(cli::count_member(round, "round"));
    return numbers;
  }
  CommandRun command(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--data-dir", folder_.file("coordinator")});
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  std::vector<value> lines_of(const std::string& file) {
    std::vector<value> lines;
    std::ifstream in(folder_.file(file));
    for (std::string line; std::getline(in, line);) lines.push_back(cli::parse_json(line, "a line").value());
    return lines;
  }
};

TEST_F(RetentionTest, WhoWasAwayLearnsWhatBecameOfAnUpdateOfAPrunedRound) {
  cli::FederationShape shape{.sites = 2, .aggregators = 0};
  shape.arguments["coordinator"] = {"--keep-rounds", "4"};
  start(std::move(shape));
  RoundGate& gate = hold_from(3);
  add_worker(1, gated(gate, 1));
  add_worker(2);
  round::Plan wanted = plan(12);
  wanted.participants_min = wanted.quorum = 1;
  wanted.soft_deadline = std::chrono::seconds(5);
  wanted.models_kept = 2;
  const std::uint64_t run = start_run(wanted, 1'000);
  wait_in("coordinator", 3, 1);  // the second site's update, and nobody told it of an outcome
  wait_status(2, [](const value& status) { return cli::count_member(status, "pending_round") == 3; });
  federation_->kill("site-2");
  gate.open();
  wait_state(run, "done");
  const CommandRun before = command({"run", "export", "--out", folder_.file("before.jsonl")});
  EXPECT_EQ(before.exit_status, 0) << before.output;
  EXPECT_EQ(lines_of("before.jsonl").size(), 12U);
  EXPECT_TRUE(names(lines_of("before.jsonl").at(2), "contributors", "site-2"));

  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_log("coordinator", "old rounds pruned");
  EXPECT_THAT(rounds(run), testing::ElementsAre(9, 10, 11, 12));
  const CommandRun shown = command({"rounds", "show", "3"});
  EXPECT_NE(shown.exit_status, 0);
  EXPECT_THAT(shown.output, HasSubstr("no longer in the coordinator's journal"));
  const CommandRun after = command({"run", "export", "--format", "csv", "--out", folder_.file("after.csv")});
  EXPECT_EQ(after.exit_status, 0) << after.output;
  EXPECT_THAT(after.output, HasSubstr("rounds 1 to 8 are not in the coordinator's journal any more"));
  EXPECT_THAT(text_of_file(folder_.file("after.csv")), HasSubstr(",site-1,counted,"));

  ASSERT_TRUE(federation_->restart("site-2").ok());
  const value status = wait_status(2, [](const value& now) { return cli::count_member(now, "pending_round") == 0; });
  EXPECT_EQ(outcomes(status, "counted"), 1U) << "since it came back: the update of the third round";
  EXPECT_EQ(outcomes(status, "late"), 0U);
}

}  // namespace
}  // namespace fluvial::integration
