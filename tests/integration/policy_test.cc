// What a site's owner does not allow is declined with the reason, in peace: nobody waits for it, and who asks is told.
// And what every process keeps to itself.
#include <gmock/gmock.h>

#include "core/base/testing.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using testing::HasSubstr;

class PolicyTest : public FederationTest {
 protected:
  std::string fluvial(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--admin-socket", federation_->admin().place()});
    const CommandRun ran = run_fluvial(*supervisor_, folder_, std::move(arguments));
    EXPECT_EQ(ran.exit_status, 0) << ran.output;
    return ran.output;
  }
  // The message with which the round names the site among those that are not in.
  static std::string refusal_of(const value& round, const std::string& site) {
    for (const value& refused : cli::array_member(round, "refused")) {
      if (cli::text_member(refused, "name") == site) return cli::text_member(refused, "message");
    }
    return "";
  }
  round::Plan plan_of_two(std::uint64_t rounds) const {
    round::Plan wanted = plan(rounds);
    wanted.quorum = 2;
    wanted.soft_deadline = std::chrono::minutes(10);  // whoever waited for the third site would wait for ever
    wanted.hard_deadline = std::chrono::minutes(20);
    return wanted;
  }
};

TEST_F(PolicyTest, ARunThatTheOwnerDoesNotAllowGoesOnWithoutTheSiteAndSaysWhy) {
  cli::FederationShape shape{.sites = 3, .aggregators = 1};
  shape.arguments["site-3"] = {"--policy-runs", "retina-*, digits"};
  start(shape);
  add_workers();
  const std::uint64_t run = start_run(plan_of_two(3), 1'000);
  wait_state(run, "done");
  const std::string why = "the site's owner allows only runs named retina-*, digits";
  for (const value& round : committed(run)) {
    EXPECT_TRUE(names(round, "contributors", "site-1") && names(round, "contributors", "site-2"));
    EXPECT_EQ(refusal_of(round, "site-3"), why) << "it is asked, and says so, each time";
  }
  const auto shown = cli::parse_json(fluvial({"rounds", "show", "2", "--json"}), "rounds show");
  ASSERT_TRUE(shown.ok());
  EXPECT_EQ(refusal_of(*shown, "site-3"), why);
  EXPECT_THAT(fluvial({"rounds", "show", "2"}), HasSubstr(why));
  EXPECT_THAT(log_of("site-3"), HasSubstr("round declined by the rules of the site's owner"));
  EXPECT_THAT(*federation_->metrics_of("site-3"), HasSubstr("rounds_forbidden_total{rule=\"runs\"} 3\n"));
  expect_exact(run);
}

TEST_F(PolicyTest, AnotherRunOfTheSameFederationIsNotDeclined) {
  cli::FederationShape shape{.sites = 2, .aggregators = 0};
  shape.arguments["site-2"] = {"--policy-runs", "allowed"};
  start(shape);
  add_workers();
  round::Plan wanted = plan_of_two(2);
  wanted.name = "allowed";
  const std::uint64_t run = start_run(wanted, 1'000);
  wait_state(run, "done");
  for (const value& round : committed(run)) EXPECT_TRUE(names(round, "contributors", "site-2")) << cli::pretty(round);
}

TEST_F(PolicyTest, ACohortThatTheCoordinatorHasSignedIsBelieved) {
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  shape.arguments["site-1"] = {"--policy-cohort-min", "2"};
  shape.arguments["site-2"] = {"--policy-cohort-min", "3"};
  start(shape);
  add_workers();
  round::Plan wanted = plan_of_two(2);
  wanted.quorum = 1;
  const std::uint64_t run = start_run(wanted, 1'000);
  wait_state(run, "done");
  for (const value& round : committed(run)) {
    EXPECT_TRUE(names(round, "contributors", "site-1")) << cli::pretty(round);
    EXPECT_EQ(refusal_of(round, "site-2"), "the site's owner allows only rounds of at least 3 sites: this one asks 2");
  }
}

TEST_F(PolicyTest, ARoundThatNobodyMayTakePartInSaysSoToWhoeverAsks) {
  cli::FederationShape shape{.sites = 1, .aggregators = 0};
  shape.arguments["site-1"] = {"--policy-cohort-min", "50"};
  start(shape);
  add_workers();
  const std::uint64_t run = start_run(plan(1), 1'000);
  const auto said = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
    return fluvial({"rounds", "show", "open", "--run", std::to_string(run)}).find("at least 50 sites") !=
           std::string::npos;
  });
  EXPECT_TRUE(said.ok() && *said) << fluvial({"rounds", "show", "open"});
}

TEST_F(PolicyTest, NoProcessThatHoldsAKeyLeavesACoreDump) {
  start(1, 1);
  for (const char* name : {"coordinator", "aggregator-1", "site-1"}) {
    const std::vector<int> pids = processes_that_mention(folder_.file(name));
    EXPECT_FALSE(pids.empty()) << name;
    for (const int pid : pids) {
      const std::string limits = text_of_file("/proc/" + std::to_string(pid) + "/limits");
      EXPECT_THAT(limits, testing::ContainsRegex("Max core file size +0 ")) << name;
    }
  }
}

}  // namespace
}  // namespace fluvial::integration
