// Many sites in one process: what becomes of the others, and of the process, when some of them fail.
#include "edge/service/many.h"

#include <gmock/gmock.h>

#include <boost/asio/post.hpp>
#include <map>

#include "core/net/signal.h"
#include "core/store/memory_file_system.h"

namespace fluvial::edge {
namespace {

using testing::HasSubstr;

class FakeSite final : public HostedSite {
 public:
  FakeSite(std::string name, int& stops) : name_(std::move(name)), stops_(stops) {}
  std::string status_json() const override { return R"({"name":")" + name_ + R"("})"; }
  Status failure() const override { return Error{Code::kUnavailable, "its disk is gone"}; }
  void stop() override { ++stops_; }

 private:
  std::string name_;
  int& stops_;
};

net::Awaitable<void> until(net::AsyncSignal* over) { co_await over->wait(); }

class SitesTest : public testing::Test {
 protected:
  SitesTest() { process_.spawn("what the sites have begun", until(&over_)); }
  static config::CommonSettings settings() {
    config::CommonSettings settings;
    settings.data_dir = "/sites";
    settings.metrics_listen = "off";
    return settings;
  }
  void add(const std::string& name) {
    sites_.add(name, [&](Sites::Told told) -> Result<std::unique_ptr<HostedSite>> {
      told.is(name);
      told_[name] = std::move(told);
      return std::unique_ptr<HostedSite>(std::make_unique<FakeSite>(name, stops_[name]));
    });
  }
  // On the strand, one after the other, while the process runs.
  void then(std::function<void()> act) { net::asio::post(process_.runtime().strand, std::move(act)); }
  void run() {
    const Status ended = process_.run([this] {
      sites_.stop();
      over_.notify_all();
    });
    EXPECT_TRUE(ended.ok()) << ended.error().to_string();
  }

  store::MemoryFileSystem files_;
  std::shared_ptr<telemetry::CaptureSink> log_ = std::make_shared<telemetry::CaptureSink>();
  tree::Process process_{settings(), Role::kSite, files_, telemetry::Logger(log_)};
  net::AsyncSignal over_{process_.runtime().strand};
  Sites sites_{process_};
  std::map<std::string, Sites::Told> told_;
  std::map<std::string, int> stops_;
};

TEST_F(SitesTest, OneThatEndsTakesNoOtherWithIt) {
  for (const char* name : {"a", "b", "c"}) add(name);
  const auto connected = [this] {
    process_.runtime().metrics.measure();
    return process_.runtime().metrics.gauge("connected").value();
  };
  then([&] {
    told_["a"].set_ready(true);
    told_["b"].set_ready(true);
    EXPECT_EQ(connected(), 0) << "c has no parent yet";
    told_["b"].request_stop();
    told_["b"].request_stop();
    EXPECT_EQ(stops_["b"], 0) << "it is in the middle of something";
  });
  std::string status;
  then([&] {
    then([&] {
      told_["c"].set_ready(true);
      EXPECT_EQ(connected(), 1) << "of those that are left, all are";
      EXPECT_EQ(stops_["a"] + stops_["c"], 0);
      status = sites_.status_json();
      process_.request_stop();
    });
  });
  run();
  EXPECT_THAT(status, HasSubstr(R"("failed":1,"sites":[{"name":"a"},{)"));
  EXPECT_THAT(status, HasSubstr(R"("name":"b","failure":"its disk is gone")"));
  for (const char* name : {"a", "b", "c"}) EXPECT_EQ(stops_[name], 1) << name;
  ASSERT_FALSE(sites_.failure().ok());
  EXPECT_EQ(sites_.failure().error().message, "1 of 3 sites failed; the first: b: its disk is gone");
  EXPECT_TRUE(log_->contains("a site has ended; the others go on without it"));
}

TEST_F(SitesTest, OneThatCannotBeOpenedIsLeftOut) {
  sites_.add("strange", [](const Sites::Told&) -> Result<std::unique_ptr<HostedSite>> {
    return Error{Code::kNotFound, "it is not enrolled"};
  });
  add("a");
  EXPECT_EQ(sites_.failed(), 1U);
  EXPECT_EQ(sites_.failure().error().message, "1 of 2 sites failed; the first: strange: it is not enrolled");
  EXPECT_TRUE(log_->contains("a site cannot start; the others go on without it"));
  then([&] { process_.request_stop(); });
  run();
  EXPECT_EQ(stops_["a"], 1);
}

TEST_F(SitesTest, WithTheLastOneTheProcessEnds) {
  for (const char* name : {"a", "b"}) add(name);
  then([&] { told_["a"].request_stop(); });
  then([&] { told_["b"].request_stop(); });
  run();
  EXPECT_EQ(sites_.failed(), 2U);
}

TEST_F(SitesTest, TheNextCertificateToEndIsShown) {
  for (const char* name : {"a", "b"}) add(name);
  told_["a"].certificate_ends(WallTime(std::chrono::seconds(3'000)));
  told_["b"].certificate_ends(WallTime(std::chrono::seconds(2'000)));
  telemetry::Metrics& metrics = process_.runtime().metrics;
  const telemetry::Gauge ends = metrics.gauge("certificate_expiry_timestamp_seconds");
  metrics.measure();
  EXPECT_EQ(ends.value(), 2'000);
  told_["b"].certificate_ends(WallTime(std::chrono::seconds(4'000)));
  metrics.measure();
  EXPECT_EQ(ends.value(), 3'000);
}

}  // namespace
}  // namespace fluvial::edge
