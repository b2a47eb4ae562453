// The end of a run: what a person was told holds after a kill, and whoever was away hears of it.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <future>

#include "cli/admin_client.h"
#include "cli/bench_update.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using ::testing::HasSubstr;
using ::testing::Not;

// A worker that says when it hears that its run is over.
class EndingWorker {
 public:
  EndingWorker(std::string socket, std::uint64_t weight, Train train)
      : thread_([this, socket = std::move(socket), weight, train = std::move(train)] { run(socket, weight, train); }) {}
  ~EndingWorker() { thread_.join(); }
  EndingWorker(const EndingWorker&) = delete;
  EndingWorker& operator=(const EndingWorker&) = delete;
  // The run's state; the test fails when it never comes.
  std::string wait_end() {
    std::future<std::string> end = ended_.get_future();
    return end.wait_for(std::chrono::minutes(1)) == std::future_status::ready ? end.get() : "never told";
  }

 private:
  void run(const std::string& socket, std::uint64_t weight, const Train& train) {
    auto client = local::WorkerClient::attach_with_retry(socket, {.name = "test"}, std::chrono::seconds(20));
    if (!client.ok()) return;
    for (auto event = client->next_event(); event.ok() && *event; event = client->next_event()) {
      if (const auto* ended = std::get_if<local::EndedRun>(&**event)) return ended_.set_value(ended->state);
      const auto* task = std::get_if<local::Task>(&**event);
      if (task == nullptr) continue;
      auto model = client->new_model();
      if (!model.ok()) return;
      const ByteSpan base = task->model->bytes();
      const MutableByteSpan out = model->span();
      train(*task, {reinterpret_cast<const float*>(base.data()), base.size() / sizeof(float)},
            {reinterpret_cast<float*>(out.data()), out.size() / sizeof(float)});
      if (!client->submit(std::move(*model), weight, {}).ok()) return;
    }
  }
  std::promise<std::string> ended_;
  std::thread thread_;
};

class RunEndTest : public FederationTest {
 protected:
  static cli::FederationShape quick(std::uint64_t sites, std::uint64_t aggregators) {
    cli::FederationShape shape{.sites = sites, .aggregators = aggregators};
    shape.arguments["aggregator"] = {"--session-reconnect-delay-max-ms", "500"};
    shape.arguments["site"] = {"--session-reconnect-delay-max-ms", "500", "--outcome-interval-ms", "500"};
    return shape;
  }
  round::Plan two_rounds() const {
    round::Plan wanted = plan(2);
    wanted.quorum = 1;
    wanted.adaptive_deadlines = false;
    wanted.soft_deadline = std::chrono::milliseconds(1'000);
    return wanted;
  }
  void expect_ended(std::size_t site) {
    wait_log(fmt::format("site-{}", site), "run complete");
    EXPECT_THAT(log_of(fmt::format("site-{}", site)), HasSubstr("its run is over"));
    EXPECT_THAT(log_of(fmt::format("site-{}", site)), Not(HasSubstr("goes into the next one")));
  }
  // Site 2 trains for the last round, which the other commits, while `away` is cut off: itself, or its aggregator.
  void expect_told_after_the_last_commit(std::uint64_t aggregators, const std::string& away) {
    TcpGate gate;
    cli::FederationShape shape = quick(2, aggregators);
    put_before_coordinator(gate, shape, away);
    start(std::move(shape));
    RoundGate& one = hold_from(2);
    RoundGate& two = hold_from(2);
    add_worker(1, gated(one, 1));
    EndingWorker worker(federation_->sites().at(1).worker_socket, cli::bench_weight(2), gated(two, 2));
    const std::uint64_t run = start_run(two_rounds(), 1'000);
    one.wait_arrival(2);
    two.wait_arrival(2);
    gate.refuse(true);
    gate.cut_all(Way::kUp);
    one.open();
    wait_state(run, "done");
    two.open();
    wait_log("site-2", "update encoded");
    gate.refuse(false);
    EXPECT_EQ(worker.wait_end(), "done");
    expect_ended(2);
  }
};

TEST_F(RunEndTest, ASiteThatIsAwayAtTheLastCommitLearnsThatItsRunIsOver) {
  expect_told_after_the_last_commit(/*aggregators=*/0, "site-2");
}

TEST_F(RunEndTest, AnAggregatorThatIsAwayAtTheLastCommitPassesOnThatTheRunIsOver) {
  expect_told_after_the_last_commit(/*aggregators=*/2, "aggregator-2");
}

TEST_F(RunEndTest, ARunThatIsStoppedWhileASiteIsAwayEndsForItsWorkers) {
  TcpGate gate;
  cli::FederationShape shape = quick(2, 0);
  put_before_coordinator(gate, shape, "site-2");
  start(std::move(shape));
  add_worker(1);
  RoundGate& hold = hold_from(2);
  EndingWorker worker(federation_->sites().at(1).worker_socket, cli::bench_weight(2), gated(hold, 2));
  const std::uint64_t run = start_run(plan(100), 1'000);
  hold.wait_arrival(2);
  gate.refuse(true);
  gate.cut_all(Way::kUp);
  ASSERT_TRUE(federation_->admin().post(fmt::format("/v1/runs/{}/stop", run)).ok());
  hold.open();
  wait_log("site-2", "update encoded");
  gate.refuse(false);
  EXPECT_EQ(worker.wait_end(), "stopped");
  wait_log("site-2", "its run is over");
}

TEST_F(RunEndTest, AStopHoldsWhenTheCoordinatorIsKilledTheMomentAfter) {
  start(1, 0);
  add_worker(1);
  for (int i = 0; i < 4; ++i) {
    const std::uint64_t run = start_run(plan(10'000), 1'000);
    wait_committed(run, 1);
    ASSERT_TRUE(federation_->admin().post(fmt::format("/v1/runs/{}/stop", run)).ok());
    federation_->kill("coordinator");
    ASSERT_TRUE(federation_->restart("coordinator").ok());
    const auto shown = federation_->admin().get(fmt::format("/v1/runs/{}", run));
    ASSERT_TRUE(shown.ok());
    ASSERT_EQ(cli::text_member(*shown, "status"), "stopped") << "after " << i;
  }
}

TEST_F(RunEndTest, ARevokedSiteIsOutOfTheNextAttempt) {
  start(3, 1);
  RoundGate& hold = hold_from(1);
  add_worker(1);
  add_worker(2, gated(hold, 2));
  add_worker(3, gated(hold, 3));
  round::Plan wanted = plan(1);
  wanted.quorum = 2;
  wanted.soft_deadline = std::chrono::milliseconds(1'000);
  wanted.hard_deadline = std::chrono::milliseconds(3'000);
  wanted.attempts_max = 100;
  const std::uint64_t run = start_run(wanted, 1'000);
  wait_in("coordinator", 1, 1);
  ASSERT_TRUE(federation_->admin().post("/v1/nodes/site-1/revoke").ok());
  wait_log("coordinator", "attempt=2");
  hold.open();
  const value committed = wait_committed(run, 1);
  EXPECT_TRUE(names(committed, "contributors", "site-2") && names(committed, "contributors", "site-3"));
  EXPECT_FALSE(names(committed, "contributors", "site-1"));
  EXPECT_TRUE(names(committed, "refused", "site-1")) << cli::pretty(committed);
  expect_exact(run, 1);
}

}  // namespace
}  // namespace fluvial::integration
