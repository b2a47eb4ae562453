// Late is next, in a real federation: what missed its round is in the next one, damped, and the models are those of the
// independent loop, bit for bit.
#include <gtest/gtest.h>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

class LateTest : public FederationTest {
 protected:
  round::Plan late_plan(std::uint64_t rounds) {
    round::Plan wanted = plan(rounds);
    wanted.late = "next";
    wanted.quorum = 1;
    wanted.adaptive_deadlines = false;
    wanted.soft_deadline = round::Milliseconds(1'500);
    wanted.hard_deadline = round::Milliseconds(20'000);
    return wanted;
  }
  // How many rounds late the updates of the site were that are in.
  std::vector<std::uint64_t> staleness_of(std::uint64_t run, const std::string& site) {
    std::vector<std::uint64_t> found;
    for (const cli::json::value& round : committed(run)) {
      for (const cli::json::value& entry : cli::array_member(round, "contributors")) {
        if (cli::text_member(entry, "name") == site) found.push_back(cli::count_member(entry, "staleness"));
      }
    }
    return found;
  }
};

TEST_F(LateTest, AnUpdateThatMissedItsRoundIsInTheNextOne) {
  start(2, 1);
  RoundGate& gate = hold_from(1);
  add_worker(1);
  add_worker(2, gated(gate, 2));
  const std::uint64_t run = start_run(late_plan(4), 3'000);
  wait_committed(run, 1);
  gate.open();
  wait_state(run, "done");
  const std::vector<std::uint64_t> staleness = staleness_of(run, "site-2");
  ASSERT_FALSE(staleness.empty());
  EXPECT_EQ(staleness.front(), 1U);
  expect_exact(run);
}

TEST_F(LateTest, AcrossADeathOfEachThatHoldsIt) {
  start(2, 1);
  RoundGate& gate = hold_from(1);
  RoundGate& last = hold_from(2);
  add_worker(1, gated(last, 1));
  add_worker(2, gated(gate, 2));
  round::Plan wanted = late_plan(4);
  wanted.soft_deadline = round::Milliseconds(1'500);
  wanted.hard_deadline = round::Milliseconds(60'000);
  wanted.quorum = 1;
  const std::uint64_t run = start_run(wanted, 3'000);
  wait_committed(run, 1);
  federation_->kill("coordinator");
  gate.open();
  wait_log("site-2", "update encoded");
  federation_->kill("site-2");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  ASSERT_TRUE(federation_->restart("site-2").ok());
  last.open();
  wait_state(run, "done");
  const std::vector<std::uint64_t> staleness = staleness_of(run, "site-2");
  ASSERT_FALSE(staleness.empty());
  EXPECT_EQ(staleness.front(), 1U) << "the submission of round 1 was on its disk";
  expect_exact(run);
}

}  // namespace
}  // namespace fluvial::integration
