// 1-bit Adam (docs/design/onebit-adam.md) in a real federation whose processes die: what a site was lent of the
// momentum counts once, and models are those of the independent loop, bit for bit.
#include <gmock/gmock.h>

#include "core/aggregate/plan_forms.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

constexpr std::uint64_t kOnebitParams = 3'000;

class OnebitTest : public FederationTest {
 protected:
  // Two rounds of warm-up.
  round::Plan onebit_plan(std::uint64_t rounds) {
    round::Plan wanted = plan(rounds);
    wanted.codec = "onebit_adam:freeze=2";
    EXPECT_TRUE(aggregate::suit_optimizer(&wanted));
    wanted.chunk_values = 1'000;
    return wanted;
  }
  // Likewise; rounds go on without a site that is late.
  round::Plan impatient_plan(std::uint64_t rounds) {
    round::Plan wanted = onebit_plan(rounds);
    wanted.quorum = 1;
    wanted.adaptive_deadlines = false;
    wanted.soft_deadline = round::Milliseconds(2'000);
    return wanted;
  }
};

TEST_F(OnebitTest, RoundsCommitThroughATree) {
  start(3, 1);
  add_workers();
  const std::uint64_t run = start_run(onebit_plan(5), kOnebitParams);
  wait_state(run, "done");
  expect_exact(run, 5);
}

// It has the momentum from the last commit, and asks in the round that was open for the same updates.
TEST_F(OnebitTest, AcrossADeathOfTheCoordinator) {
  start(2, 1);
  survives_in_round(onebit_plan(6), 4, "coordinator");
}

TEST_F(OnebitTest, AcrossADeathOfAnAggregator) {
  start(2, 1);
  survives_in_round(onebit_plan(6), 4, "aggregator-1");
}

// Without a warm-up of its own, across a death of the coordinator while its first round is open: the momentum that the
// round begins with is the other run's.
TEST_F(OnebitTest, ARunGoesOnBehindTheWarmUpOfAnother) {
  start(2, 1);
  RoundGate& gate = hold_from(1);
  for (std::uint64_t site = 1; site <= 2; ++site) {
    add_worker(site, [at_once = bench_train(site), held = gated(gate, site)](
                         const local::Task& task, std::span<const float> base, std::span<float> local) {
      return task.run.value() == 1 ? at_once(task, base, local) : held(task, base, local);
    });
  }
  ASSERT_EQ(start_run(onebit_plan(4), kOnebitParams), 1u);
  wait_state(1, "done");
  round::Plan wanted = onebit_plan(3);
  wanted.codec = "onebit_adam:freeze=0";
  const std::uint64_t second = continue_run(1, wanted);
  gate.wait_arrival(1, 2);
  federation_->kill("coordinator");
  gate.open();
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_state(second, "done");
  expect_exact(second, 3);
}

// Trained too late to be encoded: nothing was lent for it.
TEST_F(OnebitTest, AcrossADeathOfASiteThatTrainedTooLong) {
  start(2, 1);
  survives_late_in(impatient_plan(8), 4);
}

// Encoded and not in: what it was lent is durable with it, and given back by whoever reads it after the death.
TEST_F(OnebitTest, AcrossADeathOfASiteWhoseUpdateCameTooLate) {
  TcpGate gate;
  cli::FederationShape shape{.sites = 2, .aggregators = 0};
  put_before_coordinator(gate, shape, "site-2");
  start(std::move(shape));
  RoundGate& hold = hold_from(4);
  add_worker(1);
  add_worker(2, gated(hold, 2));
  const std::uint64_t run = start_run(impatient_plan(8), kOnebitParams);
  hold.wait_arrival(4);
  gate.set(Way::kUp, {.forwards = false});
  hold.open();
  wait_log("site-2", "update encoded run=1 round=4");
  federation_->kill("site-2");
  wait_committed(run, 4);
  gate.cut_all(Way::kUp);
  gate.set({});
  ASSERT_TRUE(federation_->restart("site-2").ok());
  wait_state(run, "done");
  wait_log("site-2", "update late");
  expect_exact(run, 8);
}

}  // namespace
}  // namespace fluvial::integration
