// Rounds with several passes (docs/design/phases.md) in a real federation: two vectors up, one down between them, and
// models that are those of the independent loop, bit for bit.
#include <fmt/format.h>
#include <fmt/ranges.h>
#include <gmock/gmock.h>

#include <set>

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
  // What each of them did for the round is reported soon after its commit.
  void expect_fetched_by(std::uint64_t run, std::uint64_t round, const std::set<std::string>& nodes) {
    std::set<std::string> fetched;
    const auto told = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
      FLUVIAL_ASSIGN(const cli::json::value timeline,
                     federation_->admin().get(fmt::format("/v1/rounds/{}/timeline?run={}", round, run)));
      for (const cli::json::value& span : cli::array_member(timeline, "spans")) {
        if (cli::text_member(span, "name") == "vector") fetched.insert(cli::text_member(span, "node"));
      }
      return fetched == nodes;
    });
    EXPECT_TRUE(told.ok() && *told) << "the codec's vector was fetched by "
                                    << fmt::format("{}", fmt::join(fetched, ", "));
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
  expect_fetched_by(run, 3, {"aggregator-1", "site-1", "site-2", "site-3"});
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
