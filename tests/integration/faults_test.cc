// Sites that are late or wrong: the round commits without them, the log says why, the others are unaffected.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <limits>

#include "cli/admin_client.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using ::testing::HasSubstr;

TEST_F(FederationTest, AStragglerIsLateAndItsUpdateTravelsWithTheNextOne) {
  start(3, 1);
  add_worker(1);
  add_worker(2);
  RoundGate& sleep = hold_from(2);
  add_worker(3, gated(sleep, 3));
  round::Plan wanted = plan(6);
  wanted.quorum = 2;
  wanted.soft_deadline = std::chrono::milliseconds(1'000);
  const std::uint64_t run = start_run(wanted, 10'000);
  const value second = wait_committed(run, 2);
  EXPECT_FALSE(names(second, "contributors", "site-3"));
  EXPECT_TRUE(names(second, "contributors", "site-1") && names(second, "contributors", "site-2"));
  EXPECT_EQ(cli::count_member(second, "late"), 1U);
  sleep.open();
  const value later = wait_event(run, [](const value& event) {
    return cli::text_member(event, "event") == "committed" && cli::count_member(event, "round") > 2 &&
           names(event, "contributors", "site-3");
  });
  EXPECT_TRUE(later.is_object());
  wait_state(run, "done");
}

TEST_F(FederationTest, ANaNIsRefusedByNameAndTheOthersCommit) {
  start(3, 1);
  add_worker(1);
  add_worker(2);
  add_worker(3, [train = bench_train(3)](const local::Task& task, std::span<const float> base, std::span<float> local) {
    const bool done = train(task, base, local);
    if (task.round == RoundId(2)) local[7] = std::numeric_limits<float>::quiet_NaN();
    return done;
  });
  round::Plan wanted = plan(4);
  wanted.quorum = 2;
  const std::uint64_t run = start_run(wanted, 10'000);
  const value second = wait_committed(run, 2);
  EXPECT_FALSE(names(second, "contributors", "site-3"));
  EXPECT_TRUE(names(second, "refused", "site-3")) << cli::pretty(second);
  const value third = wait_committed(run, 3);
  EXPECT_TRUE(names(third, "contributors", "site-3"));
  EXPECT_THAT(log_of("site-3") + log_of("aggregator-1") + log_of("coordinator"),
              HasSubstr("tensor 'w', value 7 is nan"));
  wait_state(run, "done");
}

TEST_F(FederationTest, ListingsSayWhatHappened) {
  start(2, 1);
  add_workers();
  const std::uint64_t run = start_run(plan(3), 1'000);
  wait_state(run, "done");
  const std::vector<std::string> where = {"--admin-socket", federation_->admin().place()};
  const auto listing = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), where.begin(), where.end());
    const CommandRun ran = run_fluvial(*supervisor_, folder_, arguments);
    EXPECT_EQ(ran.exit_status, 0) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(listing({"nodes", "list"}),
              ::testing::AllOf(HasSubstr("site-2"), HasSubstr("aggregator-1"), HasSubstr("connected")));
  EXPECT_THAT(listing({"run", "list"}), HasSubstr("3/3"));
  EXPECT_THAT(listing({"run", "show"}), HasSubstr("1,000 values"));
  EXPECT_THAT(listing({"rounds", "list"}), HasSubstr("2/2"));
  EXPECT_THAT(listing({"rounds", "show", "2"}), ::testing::AllOf(HasSubstr("site-1"), HasSubstr("sha256")));
  EXPECT_THAT(listing({"rounds", "watch"}), HasSubstr("round 3/3"));
  EXPECT_THAT(listing({"rounds", "watch", "--json"}), HasSubstr("\"committed\""));
  const std::string out = folder_.file("exported.safetensors");
  EXPECT_THAT(listing({"model", "export", "--round", "2", out}), HasSubstr("round 2"));
  for (const char* what : {"nodes", "run", "rounds", "token"}) {
    EXPECT_TRUE(cli::parse_json(listing({what, "list", "--json"}), what).ok());
  }
}

}  // namespace
}  // namespace fluvial::integration
