#include "cli/health.h"

#include <gmock/gmock.h>

#include <filesystem>
#include <fstream>
#include <optional>

#include "cli/command_test_support.h"
#include "cli/page_server.h"
#include "core/base/testing.h"
#include "core/identity/testing.h"

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;

Page readiness(bool is_ready) { return is_ready ? Page{200, "ready\n"} : Page{503, "not ready: no parent\n"}; }

// The folder of site "a", and whoever listens at the address in it.
class HealthTest : public ::testing::Test {
 protected:
  HealthTest() {
    const auto site = identity::TestPki().credentials(Role::kSite, NodeId(7), "a");
    EXPECT_TRUE(identity::save_credentials(site, folder_ / "identity").ok());
  }
  void listen(std::string status, bool is_ready = true) {
    server_.emplace(Pages{{"/status", {200, std::move(status)}}, {"/readyz", readiness(is_ready)}, {"/healthz", {}}});
    std::ofstream(folder_ / "metrics.address") << "127.0.0.1:" << server_->port() << "\n";
  }
  Ran health(std::vector<std::string> more = {}) const {
    more.insert(more.begin(), {"health", "--data-dir", folder_.path()});
    return run(more);
  }

  TemporaryFolder folder_;
  std::optional<PageServer> server_;
};

TEST_F(HealthTest, IsTheProcessesOfTheFolder) {
  listen(R"({"role":"site","name":"a"})");
  const Ran ran = health();
  EXPECT_EQ(ran.status, kDone) << ran.err;
  EXPECT_THAT(ran.out, HasSubstr("healthy"));
  EXPECT_EQ(health({"--live"}).status, kDone);
}

TEST_F(HealthTest, IsNotThatOfAnotherNodeAtTheSamePort) {
  for (const char* other : {R"({"role":"site","name":"b"})", R"({"role":"aggregator","name":"a"})", "no JSON"}) {
    listen(other);
    for (const Ran& ran : {health(), health({"--live"})}) {
      EXPECT_EQ(ran.status, kFailed) << other;
      EXPECT_THAT(ran.err, AllOf(HasSubstr("is another node's"), HasSubstr("the process of this folder does not run")));
    }
  }
}

TEST_F(HealthTest, OfACoordinatorIsToldByItsRole) {
  std::filesystem::remove_all(folder_ / "identity");
  std::filesystem::create_directory(folder_ / "ca");
  listen(R"({"role":"coordinator","federation":"f"})");
  EXPECT_EQ(health().status, kDone);
  listen(R"({"role":"site","name":"a"})");
  EXPECT_THAT(health().err, HasSubstr("is another node's"));
}

TEST_F(HealthTest, SaysWhyTheNodeIsNotReady) {
  listen(R"({"role":"site","name":"a"})", false);
  EXPECT_THAT(health().err, HasSubstr("/readyz: not ready: no parent"));
}

}  // namespace
}  // namespace fluvial::cli
