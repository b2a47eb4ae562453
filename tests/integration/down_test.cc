// The model goes down in another form, in a real federation: what sites train from is what the coordinator names, also
// after a coordinator that was killed, and for a site that has nothing to add a difference to.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <gtest/gtest.h>

#include <atomic>
#include <chrono>

#include "core/store/safetensors.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using ::testing::HasSubstr;
using ::testing::Not;

class DownTest : public FederationTest {
 protected:
  round::Plan plan_with(std::uint64_t rounds, const std::string& down) {
    round::Plan wanted = plan(rounds);
    wanted.down = down;
    wanted.models_kept = 1;
    return wanted;
  }
  std::vector<std::string> digests(std::uint64_t run, const char* of) {
    std::vector<std::string> found;
    for (const cli::json::value& round : committed(run)) found.push_back(cli::text_member(round, of));
    return found;
  }
  // What an operator sees of the way down: fewer bytes than the model's, something left out, and nobody who is always
  // sent the model whole.
  void expect_gauges(std::uint64_t params, bool is_rounded) {
    const double whole = gauge_of("coordinator", "model_whole_bytes");
    const double sent = gauge_of("coordinator", "model_down_bytes");
    EXPECT_EQ(whole, 4.0 * static_cast<double>(params));
    EXPECT_GT(sent, 0);
    EXPECT_LT(sent, whole * 0.55);
    EXPECT_GT(gauge_of("coordinator", "model_left_out_norm"), 0);
    const Result<std::string> page = federation_->metrics_of("aggregator-1");
    ASSERT_TRUE(page.ok());
    const char* form = is_rounded ? "rounded" : "difference";
    EXPECT_THAT(*page, Not(HasSubstr(fmt::format("models_received_total{{form=\"{}\"}} 0\n", form))));
    EXPECT_THAT(*page, Not(HasSubstr(fmt::format("models_sent_total{{form=\"{}\"}} 0\n", form))));
    EXPECT_THAT(*page, HasSubstr("models_refused_total 0\n"));
  }
  void expect_all_hold(const std::string& digest) {
    for (std::size_t site = 1; site <= federation_->sites().size(); ++site) {
      wait_status(site,
                  [&](const cli::json::value& status) { return cli::text_member(status, "model_sha256") == digest; });
    }
  }
};

// Two runs with the same updates, one across a crash of the coordinator and of a site: the same models, bit for bit.
TEST_F(DownTest, WhatSitesTrainFromOutlivesTheCoordinatorAndTheSites) {
  start(2, 1);
  std::atomic<RoundGate*> hold{nullptr};  // of the run that is broken
  for (std::uint64_t site = 1; site <= 2; ++site) {
    add_worker(site, [&hold, train = bench_train(site)](const local::Task& task, std::span<const float> base,
                                                        std::span<float> local) {
      if (RoundGate* const gate = hold) gate->wait_at(task.round.value());
      return train(task, base, local);
    });
  }
  for (const char* down : {"delta:topk:ratio=0.1", "bf16"}) {
    SCOPED_TRACE(down);
    const std::uint64_t whole = start_run(plan_with(5, down), 5'000);
    wait_state(whole, "done");
    expect_all_hold(digests(whole, "model_sha256").back());
    hold = &hold_from(3);
    const std::uint64_t broken = start_run(plan_with(5, down), 5'000);
    wait_committed(broken, 2);
    federation_->kill("coordinator");
    federation_->kill("site-1");
    hold.load()->open();
    ASSERT_TRUE(federation_->restart("coordinator").ok());
    ASSERT_TRUE(federation_->restart("site-1").ok());
    wait_state(broken, "done");
    EXPECT_EQ(digests(broken, "model_sha256"), digests(whole, "model_sha256"));
    EXPECT_EQ(digests(broken, "master_sha256"), digests(whole, "master_sha256"));
    EXPECT_NE(digests(broken, "master_sha256"), digests(broken, "model_sha256"));
    expect_gauges(5'000, std::string(down) == "bf16");
    expect_all_hold(digests(broken, "model_sha256").back());
    hold = nullptr;
  }
}

}  // namespace
}  // namespace fluvial::integration
