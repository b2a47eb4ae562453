// Rounds with several passes (docs/design/phases.md) in a real federation: two vectors up, one down between them, and
// models that are those of the independent loop, bit for bit.
#include <gmock/gmock.h>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

class PassesTest : public FederationTest {
 protected:
  round::Plan passes_plan(std::uint64_t rounds) {
    round::Plan wanted = plan(rounds);
    wanted.codec = "powersgd:rank=1";
    return wanted;
  }
};

TEST_F(PassesTest, RoundsCommitThroughATree) {
  start(3, 1);
  add_workers();
  const std::uint64_t run = start_run(passes_plan(4), 3'000);
  wait_state(run, "done");
  expect_exact(run, 4);
  EXPECT_THAT(log_of("coordinator"), testing::HasSubstr("pass over; its mean goes down"));
  EXPECT_THAT(log_of("site-1"), testing::HasSubstr("pass encoded"));
}

// It has the state of the codec from the last commit, and asks in the round that was open for both passes anew.
TEST_F(PassesTest, AcrossADeathOfTheCoordinator) {
  start(2, 1);
  survives_in_round(passes_plan(4), 3, "coordinator");
}

// What a site has trained is in what it sends later, and no round counts it twice.
TEST_F(PassesTest, AcrossADeathOfASiteThatWasMissed) {
  start(2, 1);
  round::Plan wanted = passes_plan(4);
  wanted.quorum = 1;
  wanted.adaptive_deadlines = false;
  wanted.soft_deadline = round::Milliseconds(1'000);
  survives_late_in(wanted, 2);
}

}  // namespace
}  // namespace fluvial::integration
