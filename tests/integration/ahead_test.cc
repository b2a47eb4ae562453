// Children fetch a round's model while the coordinator still digests, writes and commits it.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class AheadTest : public FederationTest {
 protected:
  // Rounds whose model came before its commit. (An announcement precedes its commit on one session.)
  void expect_used(const std::string& node) {
    const Result<std::string> page = federation_->metrics_of(node);
    ASSERT_TRUE(page.ok());
    EXPECT_THAT(*page, Not(HasSubstr("models_ahead_total{outcome=\"used\"} 0\n"))) << node;
    EXPECT_THAT(*page, HasSubstr("models_ahead_total{outcome=\"dropped\"} 0\n")) << node;
    EXPECT_THAT(*page, HasSubstr("models_refused_total 0\n")) << node;
  }
};

TEST_F(AheadTest, ModelsComeBeforeTheirCommitThroughEveryTier) {
  start(2, 1);
  for (std::uint64_t site = 1; site <= 2; ++site) add_worker(site, bench_train(site));
  for (const char* down : {"fp32", "fp16", "delta:topk:ratio=0.1"}) {
    SCOPED_TRACE(down);
    round::Plan wanted = plan(6);
    wanted.down = down;
    const std::uint64_t run = start_run(wanted, 50'000);
    wait_state(run, "done");
    if (wanted.down == "fp32") expect_exact(run, 6);
  }
  for (const char* node : {"aggregator-1", "site-1", "site-2"}) expect_used(node);
}

}  // namespace
}  // namespace fluvial::integration
