// Server optimizers with a state and a rate a layer, in a real federation: the state is committed with the model and
// taken up again by a coordinator that was killed.
#include <gtest/gtest.h>

#include <atomic>

#include "core/store/safetensors.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

class OptimizerTest : public FederationTest {
 protected:
  store::Model model_of(std::uint64_t run) {
    const auto listed = federation_->admin().get("/v1/models/" + std::to_string(run) + "/latest");
    EXPECT_TRUE(listed.ok());
    store::PosixFileSystem files;
    return store::read_model(files, cli::text_member(*listed, "path")).value();
  }
  round::Plan plan_with(std::uint64_t rounds, std::string_view optimizer) {
    round::Plan wanted = plan(rounds);
    wanted.optimizer = round::parse_server_optimizer(optimizer).value();
    return wanted;
  }
};

TEST_F(OptimizerTest, RunsFromThePlanToTheCommit) {
  start(2, 1);
  add_workers();
  std::vector<Buffer> models;
  for (const char* optimizer : {"fedavg", "fedadagrad", "fedadam", "fedyogi:tau=0.01,warmup=2", "nesterov",
                                "delayed_nesterov:every=2", "lars", "lamb", "mean", "signsgd"}) {
    SCOPED_TRACE(optimizer);
    const std::uint64_t run = start_run(plan_with(2, optimizer), 5'000);
    wait_state(run, "done");
    store::Model model = model_of(run);
    for (const Buffer& other : models) EXPECT_FALSE(std::ranges::equal(model.bytes.span(), other.span()));
    models.push_back(std::move(model.bytes));
  }
}

// Two runs with the same updates, one across a crash: the same model, bit for bit, so the state came back.
TEST_F(OptimizerTest, TheStateOutlivesTheCoordinator) {
  start(2, 0);
  std::atomic<RoundGate*> hold{nullptr};  // of the run that is broken
  for (std::uint64_t site = 1; site <= 2; ++site) {
    add_worker(site, [&hold, train = bench_train(site)](const local::Task& task, std::span<const float> base,
                                                        std::span<float> local) {
      if (RoundGate* const gate = hold) gate->wait_at(task.round.value());
      return train(task, base, local);
    });
  }
  for (const char* optimizer : {"fedadam", "lamb", "delayed_nesterov"}) {
    SCOPED_TRACE(optimizer);
    const std::uint64_t whole = start_run(plan_with(4, optimizer), 5'000);
    wait_state(whole, "done");
    hold = &hold_from(3);
    const std::uint64_t broken = start_run(plan_with(4, optimizer), 5'000);
    wait_committed(broken, 2);
    federation_->kill("coordinator");
    hold.load()->open();
    ASSERT_TRUE(federation_->restart("coordinator").ok());
    wait_state(broken, "done");
    EXPECT_TRUE(std::ranges::equal(model_of(whole).bytes.span(), model_of(broken).bytes.span()));
  }
}

}  // namespace
}  // namespace fluvial::integration
