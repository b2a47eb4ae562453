// A site whose only way out is an HTTP proxy.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <algorithm>
#include <csignal>
#include <fstream>

#include "cli/bench_update.h"
#include "tests/integration/connect_proxy.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

// Resolved by nobody but the proxy.
constexpr const char* kCoordinator = "fl.example.invalid";

class ProxyTest : public FederationTest {
 protected:
  void SetUp() override {
    start(0, 0);
    const auto token = federation_->admin().post(
        "/v1/tokens", cli::json::object{{"role", "site"}, {"name", "site-1"}, {"weight_max", cli::kBenchWeightMax}});
    ASSERT_TRUE(token.ok()) << token.error().message;
    token_ = cli::text_member(*token, "token");
    const auto status = federation_->admin().get("/v1/status").value();
    enrolment_ = fmt::format("{}:{}", kCoordinator, cli::count_member(status, "enrol_port"));
    members_ = fmt::format("{}:{}", kCoordinator, cli::count_member(status, "member_port"));
  }

  // `variables` as NAME=VALUE; nothing else of ours is there that names a proxy.
  cli::ProcessSpec spec(const std::string& name, std::vector<std::string> variables,
                        std::vector<std::string> arguments) {
    cli::ProcessSpec spec = fluvial_spec(folder_, name, std::move(arguments));
    std::vector<std::string> before = {"/usr/bin/env", "-i", "FLUVIAL_TOKEN=" + token_};
    before.insert(before.end(), variables.begin(), variables.end());
    spec.argv.insert(spec.argv.begin(), before.begin(), before.end());
    return spec;
  }
  CommandRun enroll(std::vector<std::string> variables, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = {"enroll", "--data-dir", folder_.file("s"), "--coordinator", enrolment_};
    arguments.insert(arguments.end(), more.begin(), more.end());
    const std::string name = fmt::format("enroll-{}", ++enrolments_);
    const auto process = supervisor_->spawn(spec(name, std::move(variables), std::move(arguments)));
    const int status = supervisor_->signal_and_wait(*process, 0);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, log_of(name)};
  }

  std::string token_;
  std::string enrolment_;
  std::string members_;
  int enrolments_ = 0;
};

TEST_F(ProxyTest, ASiteEnrolsAndTrainsThroughIt) {
  ConnectProxy proxy("dXNlcjpwQHNz");  // user:p@ss
  proxy.route(kCoordinator, true);
  const std::vector<std::string> through = {fmt::format("https_proxy=http://user:p%40ss@localhost:{}", proxy.port()),
                                            "no_proxy=other.example.invalid"};
  const CommandRun enrolled = enroll(through);
  ASSERT_EQ(enrolled.exit_status, 0) << enrolled.output;
  cli::ProcessSpec edge =
      spec("site", through, {"edge", "--config", folder_.file("s") + "/edge.toml", "--metrics-listen", "127.0.0.1:0"});
  edge.announces = true;
  const auto process = supervisor_->spawn(std::move(edge));
  ASSERT_TRUE(supervisor_->wait_ready(*process, std::chrono::seconds(60)).ok());
  workers_.push_back(
      std::make_unique<ThreadWorker>(folder_.file("s") + "/worker.sock", cli::bench_weight(1), bench_train(1)));
  round::Plan one = plan(3);
  one.participants_min = one.quorum = 1;
  const std::uint64_t run = start_run(one, 1'000);
  wait_state(run, "done");
  expect_exact(run, 3);
  const std::vector<std::string> opened = proxy.opened();
  EXPECT_EQ(opened.front(), enrolment_);
  EXPECT_GE(std::count(opened.begin(), opened.end(), members_), 2) << "a lease, and the session";
  EXPECT_THAT(log_of("site"), Not(HasSubstr("p@ss")));
  supervisor_->signal_and_wait(*process, SIGTERM);
}

TEST_F(ProxyTest, WhatItRefusesIsSaidInItsWords) {
  ConnectProxy proxy("dXNlcjpwQHNz");
  const std::string url = fmt::format("http://localhost:{}", proxy.port());
  EXPECT_THAT(enroll({"HTTPS_PROXY=" + url}).output,
              AllOf(HasSubstr("wants credentials (407 Proxy Authentication Required)"), HasSubstr("USER:PASSWORD@")));
  const std::string wrong = fmt::format("http://user:secret@localhost:{}", proxy.port());
  EXPECT_THAT(enroll({"HTTPS_PROXY=" + wrong}).output,
              AllOf(HasSubstr("does not take these credentials (407"), Not(HasSubstr("secret"))));
  const std::string right = fmt::format("http://user:p%40ss@localhost:{}", proxy.port());
  EXPECT_THAT(enroll({}, {"--proxy", right}).output, HasSubstr("did not connect (502 Bad Gateway)"));
  proxy.route(kCoordinator, false);
  EXPECT_THAT(enroll({"FLUVIAL_PROXY=" + right}).output, HasSubstr("refuses to connect there (403 Forbidden)"));
  const CommandRun unreadable = enroll({"https_proxy=ftp://user:secret@x:1"});
  EXPECT_EQ(unreadable.exit_status, 2);
  EXPECT_THAT(unreadable.output, AllOf(HasSubstr("http://HOST:PORT"), Not(HasSubstr("secret"))));
  EXPECT_THAT(enroll({"https_proxy=" + url, "no_proxy=example.invalid"}).output, HasSubstr("cannot resolve the name"));
  EXPECT_TRUE(proxy.opened().empty());
}

}  // namespace
}  // namespace fluvial::integration
