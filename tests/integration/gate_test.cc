// What a network does to a connection: through the TCP gate, with real processes at both ends.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using ::testing::HasSubstr;

constexpr std::uint64_t kGateParams = 1'000'000;
constexpr std::uint64_t kGateUpdateBytes = kGateParams * sizeof(float);
constexpr std::uint64_t kGateChunkValues = 1 << 16;
constexpr std::uint64_t kChunkBytes = kGateChunkValues * sizeof(float);
constexpr std::uint64_t kTalkBytes = 64 << 10;  // handshakes, headers and heartbeats: far less than a chunk

class GateTest : public FederationTest {
 protected:
  // Each site has an aggregator of its own, and this gate stands between the first two.
  void start_pairs() {
    cli::FederationShape shape{.sites = 2, .aggregators = 2};
    shape.arguments["site"] = {"--session-reconnect-delay-max-ms", "500"};
    put_before_aggregator(gate_, shape, "aggregator-1");
    start(std::move(shape));
  }
  // Three children of the coordinator, the third through the gate, with a short patience everywhere. Workers wait
  // for hold_, and from the second round on for hold_next_.
  void start_impatient() {
    cli::FederationShape shape{.sites = 3, .aggregators = 0};
    for (const char* role : {"coordinator", "site"}) {
      shape.arguments[role] = {"--session-heartbeat-interval-ms", "200", "--session-heartbeat-timeout-ms", "2000",
                               "--session-handshake-deadline-ms", "5000"};
    }
    auto& site = shape.arguments["site"];
    site.insert(site.end(), {"--session-reconnect-delay-max-ms", "500", "--outcome-interval-ms", "500"});
    put_before_coordinator(gate_, shape, "site-3");
    start(std::move(shape));
    for (std::uint64_t i = 1; i <= 3; ++i) {
      add_worker(i, [&next = hold_next_, train = gated(hold_, i)](const local::Task& task, std::span<const float> base,
                                                                  std::span<float> local) {
        next.wait_at(task.round.value());
        return train(task, base, local);
      });
    }
  }
  round::Plan impatient_plan() const {
    round::Plan wanted = plan(10'000);
    wanted.quorum = 2;
    wanted.adaptive_deadlines = false;
    wanted.soft_deadline = std::chrono::milliseconds(1'500);
    return wanted;
  }
  round::Plan chunked_plan(std::uint64_t rounds) const {
    round::Plan wanted = plan(rounds);
    wanted.chunk_values = kGateChunkValues;
    return wanted;
  }

  // All three train the first round; from then on nothing comes up from the third, and down as `down` says.
  std::uint64_t start_unheard(const Traffic& down) {
    start_impatient();
    const std::uint64_t run = start_run(impatient_plan(), 1'000);
    hold_.wait_arrival(1, 3);
    gate_.set(Way::kUp, {.forwards = false});
    gate_.set(Way::kDown, down);
    hold_.open();
    return run;
  }
  void expect_first_round_without_third(std::uint64_t run) {
    const value first = wait_committed(run, 1);
    EXPECT_TRUE(names(first, "contributors", "site-1") && names(first, "contributors", "site-2"));
    EXPECT_EQ(cli::count_member(first, "late"), 1U);
  }
  void expect_late_and_back(std::uint64_t run) {
    gate_.set({});
    wait_status(3, [](const value& status) { return outcomes(status, "late") == 1; });
    hold_next_.open();
    wait_event(run,
               [](const value& event) { return is_committed(event, 1) && names(event, "contributors", "site-3"); });
    expect_exact(run);
  }

  RoundGate& hold_ = hold_from(1);
  RoundGate& hold_next_ = hold_from(2);
  TcpGate gate_;
};

TEST_F(GateTest, AnUploadThatIsCutResumesWhereItStoppedAndCountsOnce) {
  start_pairs();
  RoundGate& hold = hold_from(2);
  add_worker(1, gated(hold, 1));
  add_worker(2);
  const std::uint64_t run = start_run(chunked_plan(2), kGateParams);
  hold.wait_arrival(2);
  const std::uint64_t before = gate_.forwarded(Way::kUp);
  const std::vector<std::uint64_t> cuts = {1'000, 3 * kChunkBytes / 2, 1'000'000, 1'900'000};
  gate_.cut_after(Way::kUp, cuts.front());
  hold.open();
  for (std::size_t i = 1; i <= cuts.size(); ++i) {
    gate_.wait_done(Way::kUp);
    if (i < cuts.size()) gate_.cut_after(Way::kUp, cuts[i]);
  }
  wait_state(run, "done");
  EXPECT_LE(gate_.forwarded(Way::kUp) - before, kGateUpdateBytes + cuts.size() * (kChunkBytes + kTalkBytes))
      << "a cut costs the chunk that it went through, and no more";
  EXPECT_THAT(log_of("aggregator-1"), HasSubstr("transfer goes on"));
  wait_status(1, [](const value& status) { return outcomes(status, "counted") == 2; });
  expect_exact(run, 2);
}

TEST_F(GateTest, APartialThatIsCutResumesWhereItStopped) {
  constexpr std::uint64_t kPackedChunkBytes = kGateChunkValues * sizeof(std::int64_t);  // at most
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  shape.arguments["aggregator"] = {"--session-reconnect-delay-max-ms", "500"};
  put_before_coordinator(gate_, shape, "aggregator-1");
  start(std::move(shape));
  RoundGate& hold = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(hold, i));
  const std::uint64_t run = start_run(chunked_plan(2), kGateParams);
  hold.wait_arrival(2, 2);
  const std::uint64_t undisturbed = gate_.forwarded(Way::kUp);  // the first round, with handshakes
  for (int i = 0; i < 2; ++i) {
    gate_.cut_after(Way::kUp, 3 * kPackedChunkBytes);
    hold.open();
    gate_.wait_done(Way::kUp);
  }
  wait_state(run, "done");
  EXPECT_LE(gate_.forwarded(Way::kUp) - undisturbed, undisturbed + 2 * (kPackedChunkBytes + kTalkBytes));
  EXPECT_THAT(log_of("coordinator"), HasSubstr("transfer goes on member=aggregator-1"));
  expect_exact(run, 2);
}

TEST_F(GateTest, ABitThatFlipsEndsTheSessionAndNothingElse) {
  start_pairs();
  RoundGate& hold = hold_from(2);
  add_worker(1, gated(hold, 1));
  add_worker(2);
  gate_.corrupt_after(Way::kDown, kGateUpdateBytes / 2);  // in the first model
  const std::uint64_t run = start_run(chunked_plan(2), kGateParams);
  gate_.wait_done(Way::kDown);
  hold.wait_arrival(2);
  gate_.corrupt_after(Way::kUp, kGateUpdateBytes / 2);  // in an update
  hold.open();
  gate_.wait_done(Way::kUp);
  wait_state(run, "done");
  expect_exact(run, 2);
  for (const char* receiver : {"site-1", "aggregator-1"}) {
    EXPECT_THAT(log_of(receiver), HasSubstr("what came was changed on its way: a TLS record does not authenticate"));
    EXPECT_THAT(log_of(receiver), HasSubstr("code=damaged"));
  }
}

TEST_F(GateTest, SlicedDelayedAndSlowTrafficGivesTheSameModels) {
  TcpGate above;
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  put_before_aggregator(gate_, shape, "aggregator-1");
  put_before_coordinator(above, shape, "aggregator-1");
  start(std::move(shape));
  add_workers();
  const std::uint64_t undisturbed = start_run(plan(3), 20'003);
  wait_state(undisturbed, "done");
  const Traffic disturbed{
      .delay = std::chrono::milliseconds(3), .slice_bytes_max = 1'200, .rate_bytes_per_s = 2'000'000};
  gate_.set(disturbed);
  above.set(disturbed);
  const std::uint64_t run = start_run(plan(3), 20'003);
  wait_state(run, "done");
  const auto expected = committed(undisturbed);
  const auto rounds = committed(run);
  ASSERT_EQ(expected.size(), 3U);
  ASSERT_EQ(rounds.size(), 3U);
  for (std::size_t i = 0; i < 3; ++i) {
    EXPECT_EQ(cli::text_member(rounds[i], "model_sha256"), cli::text_member(expected[i], "model_sha256"));
  }
  expect_exact(run);
}

// No end of the connection is told that the other is gone: heartbeats must find out.
TEST_F(GateTest, ASiteInABlackHoleIsLateAndItsUpdateTravelsWithTheNextOne) {
  const std::uint64_t run = start_unheard({.forwards = false});
  expect_first_round_without_third(run);
  wait_log("coordinator", "the peer was silent");
  wait_log("site-3", "the peer was silent");
  expect_late_and_back(run);
}

TEST_F(GateTest, ASiteThatIsNotHeardIsLateAndItsUpdateTravelsWithTheNextOne) {
  const std::uint64_t run = start_unheard({});
  expect_first_round_without_third(run);
  wait_log("coordinator", "the peer was silent");
  expect_late_and_back(run);
}

// It is heard, but hears nothing: it is counted, and must not come again with what is in already.
TEST_F(GateTest, ASiteThatHearsNothingIsCountedOnceAndToldLater) {
  start_impatient();
  round::Plan wanted = impatient_plan();
  wanted.quorum = 3;
  const std::uint64_t run = start_run(wanted, 1'000);
  hold_.wait_arrival(1, 3);
  gate_.set(Way::kDown, {.forwards = false});
  hold_.open();
  const value first = wait_committed(run, 1);
  EXPECT_TRUE(names(first, "contributors", "site-3"));
  wait_log("site-3", "the peer was silent");
  gate_.set({});
  wait_status(3, [](const value& status) { return outcomes(status, "counted") == 1; });
  hold_next_.open();
  wait_event(run, [](const value& event) { return is_committed(event, 1) && names(event, "contributors", "site-3"); });
  expect_exact(run);
}

TEST_F(GateTest, ASiteThatCannotReachItsParentGetsAnotherAndCountsInTheOpenRound) {
  cli::FederationShape shape{.sites = 2, .aggregators = 2};
  shape.arguments["coordinator"] = {"--failover-after-ms",  "200", "--return-after-ms", "500",
                                    "--unreachable-for-ms", "1000"};
  shape.arguments["site"] = {"--session-reconnect-delay-max-ms", "500"};
  put_before_aggregator(gate_, shape, "aggregator-1");
  start(std::move(shape));
  RoundGate& hold = hold_from(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(hold, i));
  const std::uint64_t run = start_run(plan(10'000), 1'000);
  hold.wait_arrival(2, 2);
  gate_.refuse(true);
  gate_.cut_all(Way::kUp);
  wait_log("coordinator", "lease moved member=site-1 parent=coordinator");
  hold.open();
  std::uint64_t round = cli::count_member(wait_committed(run, 2), "round");
  gate_.refuse(false);
  while (parent_of("site-1") != "aggregator-1" && round < 10'000 && !HasFailure()) wait_committed(run, ++round);
  EXPECT_EQ(parent_of("site-1"), "aggregator-1") << "after round " << round;
  expect_exact(run);
}

}  // namespace
}  // namespace fluvial::integration
