// Many sites in one process: each is as exact as one that has a process to itself.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

class ManySitesTest : public FederationTest {
 protected:
  // That goes on with so many.
  round::Plan plan_of(std::uint64_t rounds, std::uint64_t sites) const {
    round::Plan wanted = plan(rounds);
    wanted.quorum = wanted.participants_min = sites;
    return wanted;
  }
};

TEST_F(ManySitesTest, EachCountsExactlyOnce) {
  start({.sites = 12, .aggregators = 2, .sites_per_process = 7});
  EXPECT_EQ(federation_->process_of("site-1"), federation_->process_of("site-7"));
  EXPECT_NE(federation_->process_of("site-1"), federation_->process_of("site-8"));
  add_workers();
  const std::uint64_t run = start_run(plan(4), 20'000);
  const value last = wait_committed(run, 4);
  for (int site = 1; site <= 12; ++site) EXPECT_TRUE(names(last, "contributors", fmt::format("site-{}", site)));
  wait_state(run, "done");
  expect_exact(run, 4);
  for (std::size_t site = 1; site <= 12; ++site) {
    const value status = wait_status(site, [](const value& now) { return outcomes(now, "counted") == 4; });
    EXPECT_EQ(cli::count_member(status, "updates_submitted"), 4U);
  }
  const auto metrics = federation_->metrics_of("site-1");
  ASSERT_TRUE(metrics.ok()) << metrics.error().message;
  EXPECT_THAT(*metrics, testing::HasSubstr("fluvial_site_outcomes_total{outcome=\"counted\"} 28\n"));
  EXPECT_THAT(*metrics, testing::HasSubstr("fluvial_site_workers_expected 7\n"));
}

TEST_F(ManySitesTest, KilledInTheMiddleOfARoundTheyLoseNothing) {
  start({.sites = 6, .aggregators = 1, .sites_per_process = 5});
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i);  // these have sent their updates by then
  for (std::uint64_t i = 3; i <= 6; ++i) add_worker(i, gated(gate, i));
  round::Plan wanted = plan(6);
  wanted.codec = "topk:ratio=0.2";  // what it leaves out is in the residuals
  const std::uint64_t run = start_run(wanted, 200'000);
  gate.wait_arrival(2, 4);
  wait_in("aggregator-1", 2, 2);
  gate.open();
  federation_->kill("sites-1");
  ASSERT_TRUE(federation_->restart("sites-1").ok());
  wait_state(run, "done");
  expect_exact(run, 6);
  for (const value& round : committed(run)) {
    for (int site = 1; site <= 6; ++site) EXPECT_TRUE(names(round, "contributors", fmt::format("site-{}", site)));
  }
}

TEST_F(ManySitesTest, OneWhoseStoreIsDamagedIsLeftOut) {
  start({.sites = 4, .aggregators = 0, .sites_per_process = 4});
  federation_->kill("sites-1");
  const std::string database = federation_->folder_of("site-2") + "/state/site.db";
  std::filesystem::remove(database + "-wal");  // which may hold every page of it
  std::ofstream(database, std::ios::trunc) << std::string(8192, 'x');
  std::filesystem::remove_all(federation_->folder_of("site-3") + "/identity");
  ASSERT_TRUE(federation_->restart("sites-1").ok());
  ASSERT_TRUE(federation_->wait_connected("sites_connected", 2).ok());
  for (const std::size_t site : {1, 4}) add_worker(site);
  const std::uint64_t run = start_run(plan_of(3, 2), 1'000);
  const value done = wait_state(run, "done");
  expect_exact(run, 3);
  for (const std::size_t site : {2, 3}) {
    wait_status(site, [](const value& now) { return !cli::text_member(now, "failure").empty(); });
  }
  wait_log("sites-1", "a site cannot start; the others go on without it");
}

TEST_F(ManySitesTest, OneThatIsRevokedIsOutAlone) {
  start({.sites = 3, .aggregators = 0, .sites_per_process = 3});
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 3; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan_of(4, 2), 1'000);
  gate.wait_arrival(2, 3);
  ASSERT_TRUE(federation_->admin().post("/v1/nodes/site-2/revoke").ok());
  wait_log("sites-1", "on the deny list");
  gate.open();
  wait_state(run, "done");
  expect_exact(run, 4);
  const cli::json::array rounds = committed(run);
  for (std::size_t i = 0; i < rounds.size(); ++i) {
    EXPECT_EQ(names(rounds[i], "contributors", "site-2"), i == 0) << i + 1;
    EXPECT_TRUE(names(rounds[i], "contributors", "site-1")) << i + 1;
  }
}

TEST_F(ManySitesTest, TheirFoldersAreCheckedBeforeAnythingStarts) {
  const auto sites = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"edge", "--sites", folder_.path()});
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  };
  const auto write = [&](const std::string& name, const std::string& text) {
    std::filesystem::create_directories(folder_.file(name));
    std::ofstream(folder_.file(name + "/edge.toml")) << text;
  };
  const auto site_of = [&](const std::string& name) {
    return fmt::format("data_dir = \"{}\"\ncoordinator = \"localhost:1\"\n", folder_.file(name));
  };
  CommandRun refused = sites({});
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.output, testing::HasSubstr("fluvial enroll --data-dir"));
  write("a", site_of("a"));
  write("b", site_of("a"));
  refused = sites({});
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.output, testing::HasSubstr("another site in"));
  write("b", site_of("b") + "worker = 3\n");
  refused = sites({});
  EXPECT_EQ(refused.exit_status, 2);
  EXPECT_THAT(refused.output, testing::HasSubstr("b/edge.toml:3: unknown key 'worker'"));
  EXPECT_EQ(sites({"--data-dir", "x"}).exit_status, 2);
  write("b", site_of("b"));
  refused = sites({"--metrics-listen", "off"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.output, testing::HasSubstr("2 of 2 sites failed; the first: "));
  EXPECT_THAT(refused.output, testing::HasSubstr("is not enrolled"));
}

}  // namespace
}  // namespace fluvial::integration
