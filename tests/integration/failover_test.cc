// A node that dies, hangs or contradicts itself in the middle of a round: whoever is below it is counted once, and the
// round commits exactly what the others gave.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <filesystem>

#include "cli/bench_update.h"
#include "core/store/journal.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using ::testing::HasSubstr;

constexpr std::uint64_t kEndlessRounds = 10'000;  // more than a test waits for

class FailoverTest : public FederationTest {
 protected:
  // Nobody waits long for one who is gone.
  static cli::FederationShape quick(std::uint64_t sites, std::uint64_t aggregators, std::uint64_t tiers = 1) {
    cli::FederationShape shape{.sites = sites, .aggregators = aggregators, .tiers = tiers};
    shape.arguments["coordinator"] = {"--failover-after-ms", "300", "--return-after-ms", "500"};
    shape.arguments["aggregator"] = {"--session-reconnect-delay-max-ms", "500"};
    shape.arguments["site"] = {"--session-reconnect-delay-max-ms", "500", "--outcome-interval-ms", "500"};
    return shape;
  }
  void add_gated_workers(RoundGate& hold) {
    for (std::uint64_t i = 1; i <= federation_->sites().size(); ++i) add_worker(i, gated(hold, i));
  }
  // What the coordinator's journal holds of the run's last attempt; while the coordinator is not running.
  round::AttemptRecord journalled_attempt(std::uint64_t run) {
    store::PosixFileSystem files;
    const auto journal = store::CoordinatorJournal::open(files, folder_.file("coordinator/journal.sqlite"));
    EXPECT_TRUE(journal.ok()) << journal.error().message;
    if (!journal.ok()) return {};
    const auto attempt = (*journal)->last_attempt(RunId(run));
    EXPECT_TRUE(attempt.ok() && *attempt);
    return attempt.ok() && *attempt ? **attempt : round::AttemptRecord{};
  }
};

TEST_F(FailoverTest, TheSitesOfADeadAggregatorGetAnotherParentAndCountInTheOpenRound) {
  start(quick(4, 2));
  RoundGate& hold = hold_from(2);
  add_gated_workers(hold);
  const std::uint64_t run = start_run(plan(3), 20'000);
  hold.wait_arrival(2, 4);
  federation_->kill("aggregator-1");
  hold.open();
  wait_state(run, "done");
  EXPECT_EQ(sites_at("coordinator"), 2U) << "those of aggregator-1, and nobody else";
  expect_exact(run, 3);
}

// Its partial is in the sum of the aggregator above, who becomes the parent of its sites.
TEST_F(FailoverTest, SitesWhoseUpdatesAreAboveAlreadyMoveThereAndCountOnce) {
  start(quick(4, 2, 2));
  RoundGate& hold = hold_from(2);
  for (const std::uint64_t i : {1, 3, 4}) add_worker(i);
  add_worker(2, gated(hold, 2));  // of aggregator-2: keeps the round open
  const std::uint64_t run = start_run(plan(3), 20'000);
  hold.wait_arrival(2);
  wait_in("aggregator-tier-1", 2, 2);
  federation_->kill("aggregator-1");
  wait_log("aggregator-tier-1", "member=site-1");
  wait_log("aggregator-tier-1", "member=site-3");
  hold.open();
  wait_state(run, "done");
  EXPECT_EQ(sites_at("aggregator-tier-1"), 2U);
  expect_exact(run, 3);
}

// The coordinator holds the dead aggregator's partial; the branches that are in it come under the coordinator whole,
// one of them with a site that is not in.
TEST_F(FailoverTest, ASubtreeMovesWholeWithWhatTheCoordinatorHoldsOfIt) {
  start(quick(4, 2, 2));
  RoundGate& hold = hold_from(2);
  for (const std::uint64_t i : {1, 3, 4}) add_worker(i);
  add_worker(2, gated(hold, 2));
  round::Plan wanted = plan(3);
  wanted.adaptive_deadlines = false;
  wanted.soft_deadline = std::chrono::milliseconds(3'000);  // of the tiers below; the quorum is four
  const std::uint64_t run = start_run(wanted, 20'000);
  hold.wait_arrival(2);
  wait_in("coordinator", 2, 3);
  federation_->kill("aggregator-tier-1");
  wait_log("coordinator", "child joined member=aggregator-1");
  wait_log("coordinator", "child joined member=aggregator-2");
  hold.open();
  wait_state(run, "done");
  EXPECT_EQ(parent_of("aggregator-1"), "coordinator");
  EXPECT_EQ(parent_of("aggregator-2"), "coordinator");
  EXPECT_EQ(sites_at("aggregator-1") + sites_at("aggregator-2"), 4U) << "the sites stay where they are";
  expect_exact(run, 3);
}

TEST_F(FailoverTest, ChildrenGoHomeBetweenRoundsWhenTheirAggregatorIsBack) {
  start(quick(4, 2));
  add_workers();
  const std::uint64_t run = start_run(plan(kEndlessRounds), 1'000);
  std::uint64_t round = 0;
  const auto rounds_until = [&](std::size_t at_coordinator) {
    while (sites_at("coordinator") != at_coordinator && round < kEndlessRounds && !HasFailure()) {
      wait_committed(run, ++round);
    }
    EXPECT_EQ(sites_at("coordinator"), at_coordinator) << "after round " << round;
  };
  federation_->kill("aggregator-1");
  rounds_until(2);
  ASSERT_TRUE(federation_->restart("aggregator-1").ok());
  rounds_until(0);
  wait_committed(run, round + 1);  // everybody is in: the quorum is four
  expect_exact(run);
}

TEST_F(FailoverTest, ASiteKilledAtAByteOfItsUploadGoesOnThereAndCountsOnce) {
  constexpr std::uint64_t kParams = 1'000'000;
  constexpr std::uint64_t kChunkValues = 1 << 16;
  TcpGate gate;
  cli::FederationShape shape = quick(2, 2);
  put_before_aggregator(gate, shape, "aggregator-1");
  start(std::move(shape));
  RoundGate& hold = hold_from(2);
  add_worker(1, gated(hold, 1));
  add_worker(2);
  round::Plan wanted = plan(2);
  wanted.chunk_values = kChunkValues;
  const std::uint64_t run = start_run(wanted, kParams);
  hold.wait_arrival(2);
  const std::uint64_t before = gate.forwarded(Way::kUp);
  kill_in_upload(gate, hold, "site-1", 2, 2'500'000);  // of four million
  wait_state(run, "done");
  EXPECT_LE(gate.forwarded(Way::kUp) - before, (kParams + 2 * kChunkValues) * sizeof(float));
  EXPECT_THAT(log_of("aggregator-1"), HasSubstr("transfer goes on"));
  expect_exact(run, 2);
}

TEST_F(FailoverTest, ACoordinatorKilledInARoundTriesItAgainWithTheSameParticipants) {
  start(quick(3, 1));
  RoundGate& hold = hold_from(2);
  add_gated_workers(hold);
  const std::uint64_t run = start_run(plan(3), 20'000);
  hold.wait_arrival(2, 3);
  federation_->kill("coordinator");
  const round::AttemptRecord first = journalled_attempt(run);
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_log("aggregator-1", "round=2 attempt=2");
  federation_->kill("coordinator");
  const round::AttemptRecord second = journalled_attempt(run);
  EXPECT_EQ(second.round, first.round);
  EXPECT_EQ(second.round, RoundId(2));
  EXPECT_GT(second.attempt, first.attempt);
  EXPECT_GT(second.epoch, first.epoch);
  EXPECT_EQ(second.scale_bits, first.scale_bits);
  EXPECT_EQ(second.base, first.base);
  ASSERT_EQ(second.participants.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(second.participants[i].site, first.participants[i].site);
    EXPECT_EQ(second.participants[i].weight_max, first.participants[i].weight_max);
  }
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  hold.open();
  const value committed = wait_committed(run, 2);
  EXPECT_GT(cli::count_member(committed, "attempt"), second.attempt.value());
  wait_state(run, "done");
  expect_exact(run, 3);
}

// A machine and its copy, as when a snapshot of it is started: both send what they trained as the same submission.
class ContradictionTest : public FailoverTest, public testing::WithParamInterface<std::size_t> {};

// The coordinator sees it itself, or is shown both contents by an aggregator.
INSTANTIATE_TEST_SUITE_P(Aggregators, ContradictionTest, testing::Values(0, 1));

TEST_P(ContradictionTest, PutsASiteInQuarantineUntilItIsCleared) {
  start(quick(2, GetParam()));
  federation_->kill("site-1");
  const std::string copy = folder_.file("copy");
  std::filesystem::remove(folder_.file("site-1/worker.sock"));  // a socket cannot be copied
  std::filesystem::copy(folder_.file("site-1"), copy, std::filesystem::copy_options::recursive);
  ASSERT_TRUE(federation_->restart("site-1").ok());
  ASSERT_TRUE(federation_->wait_connected("sites_connected", 2).ok());
  RoundGate& hold = hold_from(1);
  RoundGate& others = hold_from(1);
  add_worker(1, [&](const local::Task& task, std::span<const float> base, std::span<float> local) {
    hold.wait_at(task.round.value());
    if (task.round != RoundId(1)) return bench_train(1)(task, base, local);
    std::ranges::copy(base, local.begin());  // it learns nothing, and says something else than its copy
    return true;
  });
  add_worker(2, gated(others, 2));
  round::Plan wanted = plan(kEndlessRounds);
  wanted.quorum = wanted.participants_min = 1;
  const std::uint64_t run = start_run(wanted, 1'000);
  hold.wait_arrival(1);
  const cli::ProcessId original = federation_->process_of("site-1");
  supervisor_->signal(original, SIGSTOP);

  cli::ProcessSpec spec = fluvial_spec(folder_, "copy",
                                       {"edge", "--config", copy + "/edge.toml", "--data-dir", copy, "--metrics-listen",
                                        "127.0.0.1:0", "--log-level", "debug"});
  const auto process = supervisor_->spawn(spec);
  ASSERT_TRUE(process.ok()) << process.error().message;
  workers_.push_back(std::make_unique<ThreadWorker>(copy + "/worker.sock", cli::bench_weight(1), bench_train(1)));
  wait_log("copy", "update accepted");
  supervisor_->signal_and_wait(*process, SIGKILL);

  supervisor_->signal(original, SIGCONT);
  wait_log("site-1", "counted=true");  // it came back, and is told so
  hold.open();
  if (GetParam() > 0) {  // which reports it with what else its region brings
    wait_log("aggregator-1", "code=conflict");
    others.open();
  }
  wait_log("coordinator", "site in quarantine");
  const std::uint64_t last = GetParam() > 0 ? committed(run).size() + 2 : 1;  // that may name it
  others.open();
  const value later = wait_event(run, [last](const value& event) { return is_committed(event, last); });
  EXPECT_FALSE(names(later, "contributors", "site-1")) << cli::pretty(later);
  const auto nodes = [&](std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "nodes");
    arguments.insert(arguments.end(), {"--admin-socket", federation_->admin().place()});
    const CommandRun ran = run_fluvial(*supervisor_, folder_, arguments);
    EXPECT_EQ(ran.exit_status, 0) << ran.output;
    return ran.output;
  };
  EXPECT_THAT(nodes({"list"}), ::testing::AllOf(HasSubstr("quarantined"), HasSubstr("site-1: ")));
  const std::size_t before = committed(run).size();
  nodes({"clear", "site-1"});
  wait_event(run, [before](const value& event) {
    return is_committed(event, before) && names(event, "contributors", "site-1");
  });
  EXPECT_THAT(nodes({"list"}), ::testing::Not(HasSubstr("quarantined")));
  expect_exact(run);
}

// It is there, its connection stands, and it does nothing.
TEST_F(FailoverTest, ASiteThatHangsIsLateAndComesBack) {
  start(quick(3, 1));
  RoundGate& hold = hold_from(1);
  RoundGate& next = hold_from(2);
  for (std::uint64_t i = 1; i <= 3; ++i) {
    add_worker(i, [&next, train = gated(hold, i)](const local::Task& task, std::span<const float> base,
                                                  std::span<float> local) {
      next.wait_at(task.round.value());
      return train(task, base, local);
    });
  }
  round::Plan wanted = plan(kEndlessRounds);
  wanted.quorum = 2;
  wanted.adaptive_deadlines = false;
  wanted.soft_deadline = std::chrono::milliseconds(1'500);
  const std::uint64_t run = start_run(wanted, 1'000);
  hold.wait_arrival(1, 3);
  supervisor_->signal(federation_->process_of("site-3"), SIGSTOP);
  hold.open();
  const value first = wait_committed(run, 1);
  EXPECT_TRUE(names(first, "contributors", "site-1") && names(first, "contributors", "site-2"));
  EXPECT_EQ(cli::count_member(first, "late"), 1U);
  supervisor_->signal(federation_->process_of("site-3"), SIGCONT);
  wait_status(3, [](const value& status) { return outcomes(status, "late") == 1; });
  next.open();
  wait_event(run, [](const value& event) { return is_committed(event, 1) && names(event, "contributors", "site-3"); });
  expect_exact(run);
}

}  // namespace
}  // namespace fluvial::integration
