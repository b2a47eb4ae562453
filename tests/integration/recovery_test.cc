// Killed with -9 in the middle: what was committed stays, and the run goes on.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <chrono>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

using RecoveryTest = FederationTest;

TEST_F(RecoveryTest, ACoordinatorKilledMidRoundComesBackAndFinishesTheRun) {
  start(3, 1);
  RoundGate& gate = hold_from(3);
  for (std::uint64_t i = 1; i <= 3; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(5), 20'000);
  wait_committed(run, 2);
  gate.wait_arrival(3);  // the third round is open and being trained
  federation_->kill("coordinator");
  gate.open();
  const Status back = federation_->restart("coordinator");
  ASSERT_TRUE(back.ok()) << back.error().message;
  wait_state(run, "done");
  expect_exact(run, 5);
  const auto statuses = federation_->wait_for_model(run, 5);
  ASSERT_TRUE(statuses.ok()) << statuses.error().message;
}

TEST_F(RecoveryTest, AnAggregatorWithoutAParentDoesNotKeepItsChildren) {
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  shape.arguments["aggregator"] = {"--parentless-max-ms", "200"};
  start(std::move(shape));
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(3), 20'000);
  gate.wait_arrival(2);
  federation_->kill("coordinator");
  gate.open();
  const auto sent_away = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
    return log_of("site-1").find("has lost its own parent") != std::string::npos &&
           log_of("site-2").find("has lost its own parent") != std::string::npos;
  });
  EXPECT_TRUE(sent_away.ok() && *sent_away) << log_of("aggregator-1") << log_of("site-1");
  const Status back = federation_->restart("coordinator");
  ASSERT_TRUE(back.ok()) << back.error().message;
  wait_state(run, "done");
  expect_exact(run, 3);
}

TEST_F(RecoveryTest, AnAggregatorKilledMidRoundComesBack) {
  start(4, 2);
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 4; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(3), 20'000);
  gate.wait_arrival(2);
  federation_->kill("aggregator-1");
  ASSERT_TRUE(federation_->restart("aggregator-1").ok());
  gate.open();
  wait_state(run, "done");
  expect_exact(run, 3);
}

TEST_F(RecoveryTest, ASiteKilledMidUploadIsLateAndComesBack) {
  start(3, 1);
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i);
  add_worker(3, gated(gate, 3));
  round::Plan wanted = plan(6);
  wanted.quorum = 2;
  wanted.participants_min = 2;
  wanted.soft_deadline = std::chrono::milliseconds(1'500);
  const std::uint64_t run = start_run(wanted, 1'000'000);
  gate.wait_arrival(2);
  gate.open();  // it submits; its agent encodes and sends 4 MB
  federation_->kill("site-3");
  wait_committed(run, 2);
  ASSERT_TRUE(federation_->restart("site-3").ok());
  const value done = wait_state(run, "done");
  expect_exact(run, 6);
}

TEST_F(RecoveryTest, APausedRunResumesWhereItWas) {
  start(2, 0);
  RoundGate& gate = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(4), 1'000);
  gate.wait_arrival(2);
  const auto& admin = federation_->admin();
  ASSERT_TRUE(admin.post(fmt::format("/v1/runs/{}/pause", run)).ok());
  gate.open();  // the open round closes first
  wait_state(run, "paused");
  const auto paused = admin.get(fmt::format("/v1/runs/{}", run));
  EXPECT_EQ(cli::count_member(*paused, "committed"), 2U);
  ASSERT_TRUE(admin.post(fmt::format("/v1/runs/{}/resume", run)).ok());
  wait_state(run, "done");
  expect_exact(run, 4);
}

TEST_F(RecoveryTest, AStoppedRunIsContinuedByAnother) {
  start(2, 0);
  RoundGate& gate = hold_from(3);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(100), 1'000);
  gate.wait_arrival(3);
  const auto& admin = federation_->admin();
  ASSERT_TRUE(admin.post(fmt::format("/v1/runs/{}/stop", run)).ok());
  gate.open();
  wait_state(run, "stopped");
  const auto shown = admin.get(fmt::format("/v1/runs/{}", run));
  const auto next =
      admin.post("/v1/runs", cli::json::object{{"plan", {{"name", "more"}, {"rounds", 2}}}, {"continue", run}});
  ASSERT_TRUE(next.ok()) << next.error().message;
  const std::uint64_t second = cli::count_member(*next, "run");
  wait_state(second, "done");
  const auto last = admin.get(fmt::format("/v1/models/{}/latest", run));
  const auto first = admin.get(fmt::format("/v1/models/{}/0", second));
  EXPECT_EQ(cli::text_member(*last, "sha256"), cli::text_member(*first, "sha256"));
}

}  // namespace
}  // namespace fluvial::integration
