// A whole site against a parent on loopback, for tests: real sessions, real files.
#pragma once

#include <signal.h>
#include <unistd.h>

#include <boost/json.hpp>
#include <functional>
#include <future>
#include <thread>

#include "core/base/testing.h"
#include "core/identity/credentials.h"
#include "core/net/http.h"
#include "edge/service/edge.h"
#include "edge/service/fake_parent.h"
#include "kernels/vector.h"

namespace fluvial::edge {

inline constexpr RunId kRun{4};
inline constexpr SiteId kSite{7};
inline constexpr std::size_t kValues = 600;

inline round::Schema schema(std::uint64_t values = kValues) {
  return round::Schema::make({{"w", round::DType::kF32, {values}}, {"steps", round::DType::kI64, {1}}}).value();
}
inline HeldModel model(std::uint64_t version, std::uint64_t count = kValues) {
  Buffer bytes(schema(count).model_bytes());
  const auto steps = static_cast<std::int64_t>(version);
  EXPECT_TRUE(round::join_model(schema(count), draw(version, count), std::span(&steps, 1), bytes.span()).ok());
  return held_model(kRun, version, schema(count), bytes.span());
}

// Without an integer.
inline HeldModel plain_model(std::uint64_t version) {
  const std::vector<float> values = draw(version, kValues);
  return held_model(kRun, version, round::Schema::make({{"w", round::DType::kF32, {kValues}}}).value(),
                    std::as_bytes(std::span(values)));
}

// What a parent makes of a submission to opening()'s chunks, and of two results what the site sends.
inline std::vector<float> values_of(const transfer::StagedArrival& arrival, std::uint64_t count = kValues) {
  std::vector<float> values(count);
  Buffer scratch;
  const kernels::ChunkLayout layout{count, 256};
  for (std::size_t i = 0; i < layout.chunk_count(); ++i) {
    EXPECT_TRUE(
        arrival.update()->codec->decode_chunk(*arrival.chunks->read(i, scratch), layout.of(std::span(values), i)).ok());
  }
  return values;
}
inline std::vector<float> mean_of(const std::vector<float>& a, const std::vector<float>& b, std::uint32_t of_a,
                                  std::uint32_t of_b) {
  std::vector<float> mean(kValues);
  EXPECT_TRUE(
      kernels::weighted_mean(std::vector<std::span<const float>>{a, b}, std::vector<std::uint32_t>{of_a, of_b}, mean)
          .ok());
  return mean;
}

// What the parent opens, and how large the model is.
struct Shape {
  std::uint64_t values = kValues;
  std::uint64_t chunk_values = 256;
  std::string codec = "topk:ratio=0.1";
  std::uint64_t integers = 1;
};

inline wire::Opening opening(const Shape& shape) {
  wire::Opening opening;
  opening.run = kRun;
  opening.attempt = AttemptId(1);
  opening.epoch = Epoch(1);
  opening.plan.name = "test";
  opening.plan.codec = shape.codec;
  opening.plan.chunk_values = shape.chunk_values;
  opening.value_count = shape.values;
  opening.integer_count = shape.integers;
  opening.participants = {{kSite, Epoch(5), 100}};
  return opening;
}

inline wire::Commit commit_of(std::uint64_t round, const transfer::StagedArrival* arrival,
                              std::uint64_t values = kValues) {
  wire::Commit commit;
  commit.run = kRun;
  commit.round = RoundId(round);
  commit.attempt = AttemptId(1);
  commit.model = model(round, values).ref;
  if (arrival == nullptr) {
    commit.late = {kSite};
  } else {
    EXPECT_TRUE(commit.contributors.merge(arrival->what.contributors).ok());
  }
  return commit;
}

class SiteTest : public testing::Test {
 protected:
  explicit SiteTest(const Shape& shape = {}) : parent_(pki_, opening(shape)) {
    const Status saved =
        identity::save_credentials(pki_.credentials(Role::kSite, kSite, "hospital-a"), folder_.path() + "/identity");
    EXPECT_TRUE(saved.ok()) << saved.error().to_string();
    for (std::uint64_t version = 0; version < 6; ++version) parent_.hold(model(version, shape.values));
  }
  ~SiteTest() override { stop_site(); }

  virtual store::FileSystem& files() { return files_; }
  virtual void started() {}  // worker_socket_ is there
  virtual void stopped() {}

  config::EdgeSettings settings_of_site() const {
    config::EdgeSettings settings;
    settings.data_dir = folder_.path();
    settings.metrics_listen = "127.0.0.1:0";
    settings.coordinator = "127.0.0.1:" + std::to_string(parent_port());
    settings.session.reconnect_delay_min_ms = 1;
    settings.session.reconnect_delay_max_ms = 10;
    settings.session.outbox_bytes_max = 1 << 20;
    settings.compute_threads = 2;
    settings.gpus = "none";
    return settings;
  }
  void start_site(const std::function<void(config::EdgeSettings&)>& adjust = {}) {
    config::EdgeSettings settings = settings_of_site();
    if (adjust) adjust(settings);
    auto ready = std::make_shared<std::promise<std::string>>();
    std::future<std::string> json = ready->get_future();
    site_ = std::thread([this, settings, ready] {
      ended_ = run_edge(settings, files(), telemetry::Logger(log_),
                        [ready](const std::string& text) { ready->set_value(text); });
    });
    const boost::json::value told = boost::json::parse(json.get());
    EXPECT_EQ(told.at("name").as_string(), "hospital-a");
    http_port_ = told.at("metrics_port").to_number<std::uint16_t>();
    worker_socket_ = std::string(told.at("worker_socket").as_string());
    started();
  }
  void stop_site() {
    if (!site_.joinable()) return;
    ::kill(::getpid(), SIGTERM);  // handled since the site has connected
    site_.join();
    EXPECT_TRUE(ended_.ok()) << ended_.error().to_string();
    stopped();
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
  TemporaryFolder folder_;
  store::PosixFileSystem files_;
  std::shared_ptr<telemetry::CaptureSink> log_ = std::make_shared<telemetry::CaptureSink>();
  FakeParent parent_;
  std::thread site_;
  std::string worker_socket_;
  Status ended_;
  std::uint16_t http_port_ = 0;
};

}  // namespace fluvial::edge
