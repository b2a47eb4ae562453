// A whole site against a parent on loopback: real sessions, a real worker, real files.
#include <signal.h>
#include <unistd.h>

#include <algorithm>
#include <boost/json.hpp>
#include <future>
#include <limits>
#include <thread>

#include "core/identity/credentials.h"
#include "core/local/worker_client.h"
#include "core/net/gate.h"
#include "core/net/http.h"
#include "core/store/testing.h"
#include "edge/service/edge.h"
#include "edge/service/fake_parent.h"

namespace fluvial::edge {
namespace {

constexpr RunId kRun{4};
constexpr SiteId kSite{7};
constexpr std::size_t kValues = 600;

round::Schema schema(std::uint64_t values = kValues) {
  return round::Schema::make({{"w", round::DType::kF32, {values}}, {"steps", round::DType::kI64, {1}}}).value();
}
HeldModel model(std::uint64_t version, std::uint64_t count = kValues) {
  Buffer bytes(schema(count).model_bytes());
  const auto steps = static_cast<std::int64_t>(version);
  EXPECT_TRUE(round::join_model(schema(count), draw(version, count), std::span(&steps, 1), bytes.span()).ok());
  return held_model(kRun, version, schema(count), bytes.span());
}

// What the parent opens, and how large the model is.
struct Shape {
  std::uint64_t values = kValues;
  std::uint64_t chunk_values = 256;
  std::string codec = "topk:ratio=0.1";
};

wire::Opening opening(const Shape& shape) {
  wire::Opening opening;
  opening.run = kRun;
  opening.attempt = AttemptId(1);
  opening.epoch = Epoch(1);
  opening.plan.name = "test";
  opening.plan.codec = shape.codec;
  opening.plan.chunk_values = shape.chunk_values;
  opening.value_count = shape.values;
  opening.integer_count = 1;
  opening.participants = {{kSite, Epoch(5), 100}};
  return opening;
}

// Takes 0.5 * (round % 3 + 1) from each value, counts a step; in round 2 it breaks, in round 4 it waits for the gate.
Status work(const std::filesystem::path& socket, const std::shared_future<void>& gate) {
  FLUVIAL_ASSIGN(local::WorkerClient client,
                 local::WorkerClient::attach_with_retry(socket, {.name = "trainer"}, std::chrono::minutes(1)));
  for (;;) {
    FLUVIAL_ASSIGN(const std::optional<local::Task> task, client.next_task());
    if (!task) return {};
    FLUVIAL_ASSIGN(local::MemfdWriter trained, client.new_model());
    std::vector<float> values(task->schema.value_count());
    std::int64_t steps = 0;
    round::split_model(task->schema, task->model->bytes(), values, std::span(&steps, 1));
    for (float& value : values) value -= 0.5F * static_cast<float>(task->round.value() % 3 + 1);
    if (task->round == RoundId(4)) gate.wait();
    if (task->round == RoundId(2)) values[42] = std::numeric_limits<float>::quiet_NaN();
    ++steps;
    FLUVIAL_TRY(round::join_model(task->schema, values, std::span(&steps, 1), trained.span()));
    FLUVIAL_TRY(client.submit(std::move(trained), 20, {{"loss", 0.25}}));
  }
}

wire::Commit commit_of(std::uint64_t round, const transfer::StagedArrival* arrival) {
  wire::Commit commit;
  commit.run = kRun;
  commit.round = RoundId(round);
  commit.attempt = AttemptId(1);
  commit.model = model(round).ref;
  if (arrival == nullptr) {
    commit.late = {kSite};
  } else {
    EXPECT_TRUE(commit.contributors.merge(arrival->what.contributors).ok());
  }
  return commit;
}

class ServiceTest : public testing::Test {
 protected:
  explicit ServiceTest(const Shape& shape = {}) : parent_(pki_, opening(shape)) {
    const Status saved =
        identity::save_credentials(pki_.credentials(Role::kSite, kSite, "hospital-a"), folder_.path() + "/identity");
    EXPECT_TRUE(saved.ok()) << saved.error().to_string();
    for (std::uint64_t version = 0; version < 6; ++version) parent_.hold(model(version, shape.values));
  }
  ~ServiceTest() override { stop_site(); }

  void start_site() {
    config::EdgeSettings settings;
    settings.data_dir = folder_.path();
    settings.metrics_listen = "127.0.0.1:0";
    settings.coordinator = "127.0.0.1:" + std::to_string(parent_port());
    settings.session.reconnect_delay_min_ms = 1;
    settings.session.reconnect_delay_max_ms = 10;
    settings.session.outbox_bytes_max = 1 << 20;
    settings.compute_threads = 2;
    auto ready = std::make_shared<std::promise<std::string>>();
    std::future<std::string> json = ready->get_future();
    site_ = std::thread([this, settings, ready] {
      ended_ =
          run_edge(settings, telemetry::Logger(log_), [ready](const std::string& text) { ready->set_value(text); });
    });
    const boost::json::value told = boost::json::parse(json.get());
    EXPECT_EQ(told.at("name").as_string(), "hospital-a");
    http_port_ = told.at("metrics_port").to_number<std::uint16_t>();
    worker_ = std::thread(
        [this, socket = std::string(told.at("worker_socket").as_string())] { worked_ = work(socket, opened_); });
  }
  void stop_site() {
    if (!site_.joinable()) return;
    ::kill(::getpid(), SIGTERM);  // handled since the site has connected
    site_.join();
    worker_.join();
    EXPECT_TRUE(ended_.ok()) << ended_.error().to_string();
    EXPECT_TRUE(worked_.ok()) << worked_.error().to_string();
  }
  virtual std::uint16_t parent_port() const { return parent_.port(); }
  boost::json::value status() {
    const auto reply =
        net::http_request(net::TcpAddress{"127.0.0.1", http_port_}, "GET", "/status", "", std::chrono::seconds(30));
    EXPECT_TRUE(reply.ok()) << reply.error().to_string();
    return boost::json::parse(reply->body);
  }
  // Polls what has no event to wait for: the log.
  void wait_logged(std::string_view text) {
    const auto end = std::chrono::steady_clock::now() + std::chrono::minutes(1);
    while (!log_->contains(text) && std::chrono::steady_clock::now() < end) std::this_thread::yield();
    ASSERT_TRUE(log_->contains(text)) << text;
  }

  identity::TestPki pki_;
  store::TemporaryFolder folder_;
  std::shared_ptr<telemetry::CaptureSink> log_ = std::make_shared<telemetry::CaptureSink>();
  FakeParent parent_;
  std::thread site_;
  std::thread worker_;
  std::promise<void> gate_;
  std::shared_future<void> opened_ = gate_.get_future().share();
  Status ended_;
  Status worked_;
  std::uint16_t http_port_ = 0;
};

TEST_F(ServiceTest, TakesPartInARunToItsEnd) {
  start_site();
  EXPECT_EQ(parent_.joined.take(), Incarnation(1));
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival first = parent_.arrivals.take();
  EXPECT_EQ(first.what.contributors.find(kSite)->weight, 20u);
  EXPECT_EQ(first.what.contributors.find(kSite)->metrics.at("loss"), 0.25);
  EXPECT_EQ(first.integers, std::vector<std::int64_t>{1});
  EXPECT_EQ(first.chunks->chunk_count(), 3u);
  parent_.commit(kSite, commit_of(1, &first));

  parent_.open_round(kSite, 2, model(1));
  const round::Refusal declined = parent_.declines.take();
  EXPECT_EQ(declined.error.code, Code::kDataLoss);
  EXPECT_NE(declined.error.message.find("tensor 'w', value 42 is nan"), std::string::npos) << declined.error.message;
  parent_.commit(kSite, commit_of(2, nullptr));

  parent_.open_round(kSite, 3, model(2));
  const transfer::StagedArrival third = parent_.arrivals.take();
  parent_.cut(kSite);  // before it hears of the commit
  EXPECT_EQ(parent_.joined.take(), Incarnation(1));
  const v1::OutcomeQuery query = parent_.queries.take();
  EXPECT_EQ(query.sha256(), wire::digest_to_proto(third.what.contributors.find(kSite)->digest));
  parent_.answer(kSite, query, v1::OutcomeReply::OUTCOME_COUNTED);
  wire::Commit last = commit_of(3, &third);
  last.last = true;
  parent_.commit(kSite, last);
  wait_logged("run complete");
  wait_logged(to_hex(model(3).ref.digest));

  const boost::json::value status = this->status();
  EXPECT_EQ(status.at("outcomes").at("counted").to_number<int>(), 2);
  EXPECT_EQ(status.at("outcomes").at("refused").to_number<int>(), 0);
  EXPECT_EQ(status.at("updates_submitted").to_number<int>(), 2);
  EXPECT_EQ(status.at("update_bytes_fp32").to_number<std::uint64_t>(), 2 * kValues * sizeof(float));
  EXPECT_EQ(status.at("update_bytes_sent").to_number<std::uint64_t>(),
            first.chunks->total_bytes() + third.chunks->total_bytes() + 16);
  EXPECT_EQ(status.at("model_sha256").as_string(), to_hex(model(3).ref.digest));
  EXPECT_GT(status.at("residual_norm").to_number<double>(), 0);
  EXPECT_EQ(status.at("workers").to_number<int>(), 1);
  EXPECT_TRUE(status.at("connected").as_bool());
  EXPECT_EQ(status.at("doing").as_string(), "waiting");
  EXPECT_EQ(status.at("pending_round").to_number<int>(), 0);
}

TEST_F(ServiceTest, ASubmissionOutlivesItsProcess) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0));
  const transfer::StagedArrival before = parent_.arrivals.take();
  stop_site();
  start_site();
  EXPECT_EQ(parent_.joined.take(), Incarnation(2));
  EXPECT_EQ(status().at("pending_round").to_number<int>(), 1);
  parent_.answer(kSite, parent_.queries.take(), v1::OutcomeReply::OUTCOME_PENDING);
  parent_.open_round(kSite, 1, model(0));  // nobody holds it: send it again
  const transfer::StagedArrival after = parent_.arrivals.take();
  EXPECT_EQ(after.what.contributors.find(kSite)->digest, before.what.contributors.find(kSite)->digest);
  parent_.commit(kSite, commit_of(1, nullptr));
  wait_logged("update late");
  parent_.open_round(kSite, 3, model(1));
  EXPECT_EQ(parent_.arrivals.take().round, RoundId(3));
  EXPECT_EQ(status().at("outcomes").at("late").to_number<int>(), 1);
}

TEST_F(ServiceTest, AStragglersUpdateTravelsWithItsNextOne) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 4, model(3));
  wait_logged("worker attached");
  wait_logged("model held");
  parent_.commit(kSite, commit_of(4, nullptr));
  parent_.open_round(kSite, 5, model(4));
  gate_.set_value();
  const transfer::StagedArrival next = parent_.arrivals.take();
  EXPECT_EQ(next.round, RoundId(5)) << "the late update was not sent";
  EXPECT_EQ(status().at("outcomes").at("late").to_number<int>(), 1);
  // Round 4 took 1 from each value and round 5 took 1.5: what travels holds both.
  std::vector<float> values(256);
  Buffer scratch;
  ASSERT_TRUE(next.codec->decode_chunk(*next.chunks->read(0, scratch), values).ok());
  const float most = *std::ranges::max_element(values);
  EXPECT_NEAR(most, 2.5F, 1e-5F);
}

// 64 chunks of 64 KiB; the line breaks once, half-way through them.
class CutTest : public ServiceTest {
 protected:
  static constexpr std::uint64_t kMany = std::uint64_t{1} << 20;
  CutTest() : ServiceTest({kMany, kMany / 64, "fp32"}) {}
  ~CutTest() override { stop_site(); }
  std::uint16_t parent_port() const override { return gate_.port(); }

  net::Threads threads_;
  net::Gate gate_{threads_, parent_.port(), {.cut_after_bytes = kMany * 6, .cut_once = true}};
};

TEST_F(CutTest, AnUploadGoesOnWhereTheLineBroke) {
  start_site();
  parent_.joined.take();
  parent_.open_round(kSite, 1, model(0, kMany));
  EXPECT_EQ(parent_.received.take(), 0u);
  EXPECT_EQ(parent_.joined.take(), Incarnation(1)) << "again, after the cut";
  parent_.open_round(kSite, 1, model(0, kMany));
  const std::uint64_t received = parent_.received.take();
  EXPECT_GT(received, 0u);
  EXPECT_LT(received, 64u);
  const transfer::StagedArrival arrival = parent_.arrivals.take();
  EXPECT_EQ(arrival.chunks->total_bytes(), kMany * sizeof(float));
  EXPECT_EQ(parent_.payload_bytes_in(), kMany * sizeof(float) + sizeof(std::int64_t)) << "each byte came once";
  wire::Commit commit = commit_of(1, &arrival);
  commit.model = model(1, kMany).ref;
  parent_.commit(kSite, commit);
  wait_logged("update counted");
  EXPECT_EQ(status().at("outcomes").at("counted").to_number<int>(), 1);
  EXPECT_TRUE(parent_.arrivals.empty());
}

class TurnedAwayTest : public ServiceTest {
 protected:
  static constexpr std::uint64_t kMany = std::uint64_t{1} << 22;  // far more than waits to be sent
  TurnedAwayTest() : ServiceTest({kMany, kMany / 64, "fp32"}) {}
  ~TurnedAwayTest() override { stop_site(); }
};

TEST_F(TurnedAwayTest, AnUpdateThatIsRefusedAtItsFirstFrameStillSaysItsDigest) {
  start_site();
  parent_.joined.take();
  parent_.hold_other(kSite, 1, Incarnation(1), 1);
  parent_.open_round(kSite, 1, model(0, kMany));
  EXPECT_EQ(parent_.refusals.take().error.code, Code::kConflict) << "the site contradicts itself";
}

TEST(RunEdge, SaysHowToEnrol) {
  const store::TemporaryFolder folder;
  config::EdgeSettings settings;
  settings.data_dir = folder.path();
  settings.coordinator = "127.0.0.1:1";
  const Status ended = run_edge(settings, telemetry::null_logger(), {});
  ASSERT_FALSE(ended.ok());
  EXPECT_NE(ended.error().message.find("fluvial enroll"), std::string::npos);
}

}  // namespace
}  // namespace fluvial::edge
