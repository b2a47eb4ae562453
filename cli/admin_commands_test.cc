// What commands print of the coordinator's answers.
#include <gmock/gmock.h>

#include <vector>

#include "cli/admin_client.h"
#include "cli/command_test_support.h"
#include "cli/page_server.h"
#include "core/base/testing.h"
#include "core/identity/testing.h"
#include "core/net/https.h"
#include "core/store/safetensors.h"

namespace fluvial::cli {
namespace {

using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

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

TEST_F(AdminCommands, AnExportedModelIsOfARoundWithANumber) {
  store::PosixFileSystem files;
  const round::Schema schema = round::Schema::make({{"w", round::DType::kF32, {2}}}).value();
  const std::vector<std::byte> bytes(8);
  ASSERT_TRUE(store::write_model(files, folder_ / "round-7.safetensors", schema, bytes, {}).ok());
  const std::string model = R"({"path":")" + (folder_ / "round-7.safetensors") + R"(","sha256":")" +
                            to_hex(store::model_digest(bytes)) + R"(","round":7})";
  const Pages pages = {{"/v1/runs", {200, R"({"runs":[{"id":3}]})"}},
                       {"/v1/models/3/latest", {200, model}},
                       {"/v1/models/3/7", {200, model}}};
  const Ran said = ask(pages, {"model", "export", folder_ / "out.safetensors"});
  EXPECT_EQ(said.status, kDone) << said.err;
  EXPECT_THAT(said.out, AllOf(HasSubstr("run 3, round 7, sha256"), Not(HasSubstr("latest"))));
  const Ran as_json = ask(pages, {"model", "export", "--json", folder_ / "again.safetensors"});
  EXPECT_EQ(count_member(parse_json(as_json.out, "answer").value(), "run"), 3U) << as_json.out;
}

TEST_F(AdminCommands, AnAggregatorsTokenComesWithTheWholeCommand) {
  const auto told = [this](const std::string& role) {
    return ask({{"/v1/tokens", {200, R"({"id":"1","token":"t","name":"a"})"}}},
               {"token", "create", "--name", "a", "--role", role})
        .err;
  };
  EXPECT_THAT(told("aggregator"), HasSubstr("--data-dir /var/lib/fluvial --advertise HOST:7410\n"));
  EXPECT_THAT(told("site"), Not(HasSubstr("--advertise")));
  EXPECT_THAT(told("operator"), Not(HasSubstr("--advertise")));
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
