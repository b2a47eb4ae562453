// Killed with -9 in the middle: what was committed stays, and the run goes on.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <chrono>
#include <condition_variable>
#include <cstdlib>
#include <mutex>

#include "cli/bench_update.h"
#include "core/store/safetensors.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;

// Holds workers back in a round until it is opened.
class Gate {
 public:
  void wait_at(std::uint64_t round) {
    std::unique_lock lock(mutex_);
    arrived_ = std::max(arrived_, round);
    changed_.notify_all();
    changed_.wait(lock, [&] { return open_ || round < from_; });
  }
  void wait_arrival(std::uint64_t round) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return arrived_ >= round; });
  }
  void open() {
    const std::lock_guard lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  explicit Gate(std::uint64_t from) : from_(from) {}

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::uint64_t from_;
  std::uint64_t arrived_ = 0;
  bool open_ = false;
};

class RecoveryTest : public FederationTest {
 protected:
  Train gated(Gate& gate, std::uint64_t site_index) {
    return [&gate, train = bench_train(site_index)](const local::Task& task, std::span<const float> base,
                                                    std::span<float> local) {
      gate.wait_at(task.round.value());
      return train(task, base, local);
    };
  }
  // Every committed round of the run, and that the last model is what its digest says.
  void expect_valid(std::uint64_t run, std::uint64_t rounds) {
    const auto listed = federation_->admin().get(fmt::format("/v1/rounds?run={}", run));
    ASSERT_TRUE(listed.ok()) << listed.error().message;
    EXPECT_EQ(cli::array_member(*listed, "rounds").size(), rounds);
    const auto model = federation_->admin().get(fmt::format("/v1/models/{}/latest", run));
    ASSERT_TRUE(model.ok()) << model.error().message;
    store::PosixFileSystem files;
    const auto loaded = store::read_model(files, cli::text_member(*model, "path"));
    ASSERT_TRUE(loaded.ok()) << loaded.error().message;
    EXPECT_EQ(to_hex(store::model_digest(loaded->bytes.span())), cli::text_member(*model, "sha256"));
  }
  std::size_t sites_at(const std::string& parent) {
    const auto listed = federation_->admin().get("/v1/nodes");
    EXPECT_TRUE(listed.ok()) << listed.error().message;
    if (!listed.ok()) return 0;
    const auto& nodes = cli::array_member(*listed, "nodes");
    return static_cast<std::size_t>(std::count_if(nodes.begin(), nodes.end(), [&](const value& node) {
      return cli::text_member(node, "role") == "site" && cli::text_member(node, "parent") == parent;
    }));
  }
};

TEST_F(RecoveryTest, ACoordinatorKilledMidRoundComesBackAndFinishesTheRun) {
  start(3, 1);
  Gate gate(3);
  for (std::uint64_t i = 1; i <= 3; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(5), 20'000);
  wait_committed(run, 2);
  gate.wait_arrival(3);  // the third round is open and being trained
  federation_->kill("coordinator");
  gate.open();
  const Status back = federation_->restart("coordinator");
  ASSERT_TRUE(back.ok()) << back.error().message;
  wait_state(run, "done");
  expect_valid(run, 5);
  const auto statuses = federation_->wait_for_model(run, 5);
  ASSERT_TRUE(statuses.ok()) << statuses.error().message;
}

TEST_F(RecoveryTest, AnAggregatorWithoutAParentDoesNotKeepItsChildren) {
  ASSERT_EQ(::setenv("FLUVIAL_PARENTLESS_MAX_MS", "200", 1), 0);  // of the processes that are started here
  start(2, 1);
  Gate gate(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(3), 20'000);
  gate.wait_arrival(2);
  federation_->kill("coordinator");
  gate.open();
  const auto sent_away = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
    return log_of("site-1").find("has lost its own parent") != std::string::npos &&
           log_of("site-2").find("has lost its own parent") != std::string::npos;
  });
  EXPECT_TRUE(sent_away.ok() && *sent_away) << log_of("aggregator-1") << log_of("site-1");
  const Status back = federation_->restart("coordinator");
  ASSERT_TRUE(back.ok()) << back.error().message;
  wait_state(run, "done");
  expect_valid(run, 3);
}

TEST_F(RecoveryTest, AnAggregatorKilledMidRoundComesBack) {
  start(4, 2);
  Gate gate(2);
  for (std::uint64_t i = 1; i <= 4; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(3), 20'000);
  gate.wait_arrival(2);
  federation_->kill("aggregator-1");
  ASSERT_TRUE(federation_->restart("aggregator-1").ok());
  gate.open();
  wait_state(run, "done");
  expect_valid(run, 3);
}

// Nobody starts it again: within failover_after (5 s) and a step of their backoff its sites are the coordinator's.
TEST_F(RecoveryTest, TheSitesOfADeadAggregatorGetAnotherParentAndCountInTheOpenRound) {
  start(4, 2);
  Gate gate(2);
  for (std::uint64_t i = 1; i <= 4; ++i) add_worker(i, gated(gate, i));
  round::Plan wanted = plan(3);
  wanted.participants_min = 4;
  wanted.quorum = 4;
  wanted.soft_deadline = std::chrono::milliseconds(60'000);
  wanted.hard_deadline = std::chrono::milliseconds(120'000);
  const std::uint64_t run = start_run(wanted, 20'000);
  gate.wait_arrival(2);
  const auto begun = std::chrono::steady_clock::now();
  federation_->kill("aggregator-1");
  gate.open();
  wait_committed(run, 2);
  const auto took = std::chrono::steady_clock::now() - begun;
  wait_state(run, "done");
  expect_valid(run, 3);
  EXPECT_LT(took, std::chrono::seconds(30)) << "failover, backoff and the transfer";
  EXPECT_EQ(sites_at("coordinator"), 2U) << "those of aggregator-1, and nobody else";
}

// What a process takes from its environment, for as long as the test runs.
class Setting {
 public:
  Setting(std::string name, const char* text) : name_(std::move(name)) { setenv(name_.c_str(), text, 1); }
  ~Setting() { unsetenv(name_.c_str()); }
  Setting(const Setting&) = delete;
  Setting& operator=(const Setting&) = delete;

 private:
  std::string name_;
};

TEST_F(RecoveryTest, SitesGoHomeBetweenRoundsWhenTheirAggregatorIsBack) {
  const Setting failover("FLUVIAL_FAILOVER_AFTER_MS", "300");
  const Setting home("FLUVIAL_RETURN_AFTER_MS", "500");
  start(4, 2);
  add_workers();
  round::Plan wanted = plan(2'000);
  wanted.participants_min = 4;
  wanted.quorum = 4;
  const std::uint64_t run = start_run(wanted, 1'000);
  std::uint64_t round = 0;
  const auto rounds_until = [&](std::size_t at_coordinator) {
    while (sites_at("coordinator") != at_coordinator && round < wanted.rounds && !HasFailure()) {
      wait_committed(run, ++round);
    }
    EXPECT_EQ(sites_at("coordinator"), at_coordinator) << "after round " << round;
  };
  federation_->kill("aggregator-1");
  rounds_until(2);
  ASSERT_TRUE(federation_->restart("aggregator-1").ok());
  rounds_until(0);
  wait_committed(run, round + 1);  // everybody is in: the quorum is four
}

TEST_F(RecoveryTest, ASiteKilledMidUploadIsLateAndComesBack) {
  start(3, 1);
  Gate gate(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i);
  add_worker(3, gated(gate, 3));
  round::Plan wanted = plan(6);
  wanted.quorum = 2;
  wanted.participants_min = 2;
  wanted.soft_deadline = std::chrono::milliseconds(1'500);
  const std::uint64_t run = start_run(wanted, 4'000'000);
  gate.wait_arrival(2);
  gate.open();  // it submits; its agent encodes and sends 16 MB
  federation_->kill("site-3");
  wait_committed(run, 2);
  ASSERT_TRUE(federation_->restart("site-3").ok());
  const value done = wait_state(run, "done");
  expect_valid(run, 6);
}

TEST_F(RecoveryTest, APausedRunResumesWhereItWas) {
  start(2, 0);
  Gate gate(2);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(4), 1'000);
  gate.wait_arrival(2);
  const auto& admin = federation_->admin();
  ASSERT_TRUE(admin.post(fmt::format("/v1/runs/{}/pause", run)).ok());
  gate.open();  // the open round closes first
  wait_state(run, "paused");
  const auto paused = admin.get(fmt::format("/v1/runs/{}", run));
  EXPECT_EQ(cli::count_member(*paused, "committed"), 2U);
  ASSERT_TRUE(admin.post(fmt::format("/v1/runs/{}/resume", run)).ok());
  wait_state(run, "done");
  expect_valid(run, 4);
}

TEST_F(RecoveryTest, AStoppedRunIsContinuedByAnother) {
  start(2, 0);
  Gate gate(3);
  for (std::uint64_t i = 1; i <= 2; ++i) add_worker(i, gated(gate, i));
  const std::uint64_t run = start_run(plan(100), 1'000);
  gate.wait_arrival(3);
  const auto& admin = federation_->admin();
  ASSERT_TRUE(admin.post(fmt::format("/v1/runs/{}/stop", run)).ok());
  gate.open();
  wait_state(run, "stopped");
  const auto shown = admin.get(fmt::format("/v1/runs/{}", run));
  const auto next =
      admin.post("/v1/runs", cli::json::object{{"plan", {{"name", "more"}, {"rounds", 2}}}, {"continue", run}});
  ASSERT_TRUE(next.ok()) << next.error().message;
  const std::uint64_t second = cli::count_member(*next, "run");
  wait_state(second, "done");
  const auto last = admin.get(fmt::format("/v1/models/{}/latest", run));
  const auto first = admin.get(fmt::format("/v1/models/{}/0", second));
  EXPECT_EQ(cli::text_member(*last, "sha256"), cli::text_member(*first, "sha256"));
}

}  // namespace
}  // namespace fluvial::integration
