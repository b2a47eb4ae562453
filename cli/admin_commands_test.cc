// What commands print of the coordinator's answers.
#include <gmock/gmock.h>

#include <vector>

#include "cli/admin_client.h"
#include "cli/command_test_support.h"
#include "cli/page_server.h"
#include "core/base/testing.h"
#include "core/identity/testing.h"
#include "core/net/https.h"

namespace fluvial::cli {
namespace {

using ::testing::HasSubstr;

class AdminCommands : public ::testing::Test {
 protected:
  Ran ask(Pages pages, std::vector<std::string> arguments) {
    const PageServer server(std::move(pages), net::UnixAddress{folder_ / "admin.sock"});
    arguments.insert(arguments.end(), {"--data-dir", folder_.path()});
    return run(arguments);
  }
  TemporaryFolder folder_;
};

TEST_F(AdminCommands, AModelIsTheBestByTheLeastOrTheGreatestValue) {
  const auto listed = [this](const std::string& kept_best) {
    const std::string models = R"([{"round":2,"labels":[],"best":0.5},{"round":3,"labels":["last"],"best":null}])";
    return ask({{"/v1/models/latest",
                 {200, R"({"run":1,"kept_best":")" + kept_best + R"(","models":)" + models + "}"}}},
               {"model", "list"})
        .out;
  };
  EXPECT_THAT(listed("accuracy:max"), HasSubstr("greatest accuracy 0.5"));
  EXPECT_THAT(listed("loss:min"), HasSubstr("least loss 0.5"));
  EXPECT_THAT(listed("accuracy"), HasSubstr("least accuracy 0.5")) << "of a run from before";
}

class WrongPort : public ::testing::Test {
 protected:
  std::string refusal(std::uint16_t port) const {
    const auto tls = identity::TlsContext::admin_client(pki_.credentials(Role::kOperator, NodeId(9), "anna")).value();
    const std::string text = "https://127.0.0.1:" + std::to_string(port);
    const AdminClient client(AdminPlace{net::TlsAddress{{"127.0.0.1", port}, tls}, text, "/identity"});
    return client.get("/v1/status").error().message;
  }
  const identity::TestPki pki_;
};

TEST_F(WrongPort, IsNotTheAdminPort) {
  const PageServer plain({});
  EXPECT_THAT(refusal(plain.port()), HasSubstr("this is not the admin port: the setting admin_listen names it"));
}

TEST_F(WrongPort, OfMembersIsNotTheAdminPort) {
  net::Threads threads;
  const auto members = pki_.member_server(Role::kCoordinator, NodeId(1), "coordinator");
  const auto server =
      net::HttpsServer::open(
          threads.executor(), {"127.0.0.1", 0}, [members] { return members; }, {},
          std::make_shared<net::RecordingHooks>(), [](const identity::PeerIdentity&) { return Status(); })
          .value();
  const auto answer = [](const net::HttpRequest&) -> net::Awaitable<net::HttpResponse> {
    co_return net::HttpResponse::text(200, "");
  };
  auto running = net::asio::co_spawn(threads.executor(), server->run(answer), net::asio::use_future);
  EXPECT_THAT(refusal(server->port()), HasSubstr("this is not the admin port: the setting admin_listen names it"));
  server->stop();
  running.get();
}

}  // namespace
}  // namespace fluvial::cli
