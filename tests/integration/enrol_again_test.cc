// Enrolment that is cut short, and one entry point for the first start of a member and every other.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/identity/credentials.h"
#include "core/identity/token.h"
#include "core/tree/enrol_client.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

namespace fs = std::filesystem;
using cli::json::object;
using cli::json::value;
using ::testing::HasSubstr;

class EnrolAgainTest : public FederationTest {
 protected:
  void SetUp() override { start(0, 0); }

  std::string new_token(const std::string& name, const std::string& role = "site") {
    object request{{"role", role}, {"name", name}, {"ttl_s", 600}};
    const auto token = federation_->admin().post("/v1/tokens", request);
    EXPECT_TRUE(token.ok()) << token.error().message;
    return token.ok() ? cli::text_member(*token, "token") : "";
  }
  std::string file_of(const std::string& token) {
    const std::string file = folder_.file(fmt::format("token-{}", ++files_));
    std::ofstream(file) << token << "\n";
    EXPECT_EQ(::chmod(file.c_str(), 0600), 0);
    return file;
  }
  std::vector<std::string> enroll_arguments(const std::string& token, const std::string& folder) {
    return {"enroll", "--token-file", file_of(token), "--data-dir", folder_.file(folder)};
  }
  CommandRun enroll(const std::string& token, const std::string& folder, std::vector<std::string> more = {}) {
    std::vector<std::string> arguments = enroll_arguments(token, folder);
    arguments.insert(arguments.end(), more.begin(), more.end());
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  // `fluvial edge` or `aggregator` with --enroll, announced and killed as the federation's own nodes are.
  cli::ProcessSpec member(const std::string& role, const std::string& name, std::vector<std::string> more) {
    std::vector<std::string> arguments = {
        role, "--enroll", "--data-dir", folder_.file(name), "--metrics-listen", "127.0.0.1:0"};
    arguments.insert(arguments.end(), more.begin(), more.end());
    cli::ProcessSpec spec = fluvial_spec(folder_, name, std::move(arguments));
    spec.announces = true;
    return spec;
  }
  cli::ProcessId spawn(cli::ProcessSpec spec) {
    const auto process = supervisor_->spawn(std::move(spec));
    EXPECT_TRUE(process.ok()) << process.error().message;
    return *process;
  }
  void wait_connected(const char* key, std::uint64_t count) {
    const auto connected = cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
      FLUVIAL_ASSIGN(const value status, federation_->admin().get("/v1/status"));
      return cli::count_member(status, key) == count;
    });
    EXPECT_TRUE(connected.ok() && *connected) << key;
  }
  std::uint16_t enrol_port() {
    return static_cast<std::uint16_t>(cli::count_member(federation_->admin().get("/v1/status").value(), "enrol_port"));
  }
  std::string serial_in(const std::string& folder) {
    const auto credentials = identity::load_credentials(folder_.file(folder) + "/identity");
    EXPECT_TRUE(credentials.ok()) << credentials.error().message;
    return credentials.ok() ? credentials->chain.front().serial_hex() : "";
  }
  std::size_t nodes() { return cli::array_member(federation_->admin().get("/v1/nodes").value(), "nodes").size(); }
  int files_ = 0;
};

TEST_F(EnrolAgainTest, AnAnswerThatWasLostCostsNothing) {
  const std::string token = new_token("hospital-a");
  TcpGate gate;
  gate.set_target(enrol_port());
  // The coordinator's answer, the last thing that it sends, stays in the gate.
  const std::vector<std::string> through = {"--coordinator", gate.address()};
  cli::ProcessSpec spec = fluvial_spec(folder_, "lost", enroll_arguments(token, "a"));
  spec.argv.insert(spec.argv.end(), through.begin(), through.end());
  gate.hold_after(Way::kDown, 2'000);
  const cli::ProcessId lost = spawn(spec);
  wait_log("coordinator", "enrolled member=");
  EXPECT_FALSE(fs::exists(folder_.file("a") + "/identity/cert.pem"));
  supervisor_->signal_and_wait(lost, SIGKILL);

  const CommandRun thief = enroll(token, "b");
  EXPECT_NE(thief.exit_status, 0) << "another key";
  EXPECT_THAT(thief.output, HasSubstr("was used at"));

  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  const CommandRun again = enroll(token, "a");
  EXPECT_EQ(again.exit_status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("enrolled as site 2 (hospital-a)"));
  wait_log("coordinator", "the same certificate again");
  EXPECT_EQ(nodes(), 1u);
}

TEST_F(EnrolAgainTest, EndedAtAnyMomentItGoesOnWithTheSameToken) {
  const std::string token = new_token("hospital-a");
  ASSERT_EQ(enroll(token, "a").exit_status, 0);
  const std::string serial = serial_in("a");
  const std::vector<std::string> in_order = {"identity/key.pem",         "edge.toml",
                                             "identity/ca.pem",          "identity/token_sha256",
                                             "identity/enrolled_before", "identity/cert.pem"};
  for (std::size_t written = 1; written < in_order.size(); ++written) {
    const std::string folder = fmt::format("cut-{}", written);
    fs::copy(folder_.file("a"), folder_.file(folder), fs::copy_options::recursive);
    for (std::size_t i = written; i < in_order.size(); ++i) {
      ASSERT_TRUE(fs::remove(folder_.file(folder) + "/" + in_order[i])) << in_order[i];
    }
    const CommandRun again = enroll(token, folder);
    EXPECT_EQ(again.exit_status, 0) << again.output;
    EXPECT_EQ(serial_in(folder), serial) << written;
    for (const std::string& file : in_order) EXPECT_TRUE(fs::exists(folder_.file(folder) + "/" + file)) << file;
  }
  EXPECT_EQ(nodes(), 1u);

  const CommandRun whole = enroll(token, "a");
  EXPECT_EQ(whole.exit_status, 0) << whole.output;
  EXPECT_THAT(whole.output, HasSubstr("enrolled already as site 2 (hospital-a): nothing to do"));
  const CommandRun other = enroll(new_token("hospital-b"), "a");
  EXPECT_EQ(other.exit_status, 1);
  EXPECT_THAT(other.output, HasSubstr("enrolled already as site 2 (hospital-a), the token is for site hospital-b"));

  // What was given once is not given to a member that was shut out, or that has another key by now.
  fs::remove(folder_.file("cut-1") + "/identity/cert.pem");
  ASSERT_TRUE(federation_->admin().post("/v1/nodes/hospital-a/revoke").ok());
  EXPECT_THAT(enroll(token, "cut-1").output, HasSubstr("was revoked at"));
  ASSERT_EQ(enroll(new_token("hospital-a"), "anew").exit_status, 0);
  EXPECT_THAT(enroll(token, "cut-1").output, HasSubstr("was used at"));
}

// Nobody else is kept from enrolling by it.
TEST_F(EnrolAgainTest, AUsedTokenAgainAndAgainIsHeldBack) {
  const auto token = identity::EnrolmentToken::parse(new_token("hospital-a")).value();
  const auto key = identity::PrivateKey::generate().value();
  const tree::EnrolSettings settings{.address = fmt::format("127.0.0.1:{}", enrol_port())};
  int given = 0;
  Status refused;
  for (int i = 0; i < 15 && refused.ok(); ++i) {
    const auto enrolment = tree::enrol_blocking(token, key, settings);
    given += enrolment.ok() ? 1 : 0;
    if (!enrolment.ok()) refused = enrolment.error();
  }
  EXPECT_EQ(given, 11) << "the first time, and ten times again";
  ASSERT_FALSE(refused.ok());
  EXPECT_THAT(refused.error().message, HasSubstr("comes too often with the token that it has used"));
  EXPECT_EQ(enroll(new_token("hospital-b"), "b").exit_status, 0);
}

TEST_F(EnrolAgainTest, ANewTokenForTheSameNameIsUsed) {
  ASSERT_EQ(enroll(new_token("hospital-a"), "a").exit_status, 0);
  const std::string serial = serial_in("a");
  const auto more = federation_->admin().post(
      "/v1/tokens", object{{"role", "site"}, {"name", "hospital-a"}, {"ttl_s", 600}, {"weight_max", 77}});
  ASSERT_TRUE(more.ok()) << more.error().message;
  const std::string token = cli::text_member(*more, "token");
  const CommandRun again = enroll(token, "a");
  EXPECT_EQ(again.exit_status, 0) << again.output;
  EXPECT_THAT(again.output, HasSubstr("enrolled as site 2 (hospital-a)"));
  EXPECT_THAT(again.output, HasSubstr("restart it"));
  EXPECT_NE(serial_in("a"), serial);
  const value nodes = federation_->admin().get("/v1/nodes").value();
  EXPECT_EQ(cli::count_member(cli::array_member(nodes, "nodes")[0], "weight_max"), 77U);
  EXPECT_THAT(enroll(token, "a").output, HasSubstr("enrolled already")) << "that one was used for it";

  ASSERT_TRUE(federation_->admin().post("/v1/nodes/hospital-a/revoke").ok());
  const CommandRun shut_out = enroll(new_token("hospital-a"), "a");
  EXPECT_NE(shut_out.exit_status, 0);
  EXPECT_THAT(shut_out.output, HasSubstr("key was revoked"));
}

TEST_F(EnrolAgainTest, OneEntryPointForTheFirstStartAndEveryOther) {
  const std::string token_file = file_of(new_token("hospital-a"));
  federation_->kill("coordinator");
  const cli::ProcessId first = spawn(member("edge", "a", {"--token-file", token_file}));
  wait_log("a", "not enrolled yet");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  ASSERT_TRUE(supervisor_->wait_ready(first, std::chrono::seconds(60)).ok());
  wait_connected("sites_connected", 1);

  fs::remove(token_file);
  supervisor_->signal_and_wait(first, SIGKILL);
  const cli::ProcessId second = spawn(member("edge", "a", {"--token-file", token_file}));
  ASSERT_TRUE(supervisor_->wait_ready(second, std::chrono::seconds(60)).ok());
  wait_connected("sites_connected", 1);
  const int ended = supervisor_->signal_and_wait(second, SIGTERM);
  EXPECT_TRUE(WIFEXITED(ended) && WEXITSTATUS(ended) == 0);
}

TEST_F(EnrolAgainTest, AnAggregatorListensWhereItSaysThatItIs) {
  const std::string token_file = file_of(new_token("eu", "aggregator"));
  TcpGate free_port;  // holds a port that nobody else gets
  const std::uint16_t port = free_port.port();
  const cli::ProcessId process =
      spawn(member("aggregator", "eu", {"--token-file", token_file, "--advertise", fmt::format("localhost:{}", port)}));
  EXPECT_NE(supervisor_->signal_and_wait(process, 0), 0);
  EXPECT_THAT(log_of("eu"), HasSubstr(fmt::format("0.0.0.0:{}", port)));
}

TEST_F(EnrolAgainTest, WhatItRefusesBeforeTheTokenIsSpent) {
  const std::string token = new_token("hospital-a");
  const CommandRun coordinators = enroll(token, "coordinator");
  EXPECT_EQ(coordinators.exit_status, 1);
  EXPECT_THAT(coordinators.output, HasSubstr("is a coordinator's folder (it holds ca/)"));

  const auto ended = [&](cli::ProcessSpec spec) {
    const int status = supervisor_->signal_and_wait(spawn(std::move(spec)), 0);
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
  };
  EXPECT_EQ(ended(member("aggregator", "wrong-role", {"--token-file", file_of(token), "--advertise", "h:1"})), 2);
  EXPECT_THAT(log_of("wrong-role"),
              HasSubstr("the token is for site hospital-a: expected one for the role aggregator"));
  EXPECT_EQ(ended(member("edge", "no-token", {})), 2);
  EXPECT_THAT(log_of("no-token"), HasSubstr("there is no token"));

  const std::string open = file_of(token);
  ASSERT_EQ(::chmod(open.c_str(), 0644), 0);
  const CommandRun warned =
      run_fluvial(*supervisor_, folder_, {"enroll", "--token-file", open, "--data-dir", folder_.file("a")});
  EXPECT_EQ(warned.exit_status, 0) << warned.output;
  EXPECT_THAT(warned.output, HasSubstr("has mode 0644"));
}

TEST_F(EnrolAgainTest, HealthIsAskedOfTheProcessItself) {
  const auto status = federation_->admin().get("/v1/status").value();
  const std::string folder = folder_.file("coordinator");
  const auto health = [&](std::vector<std::string> more) {
    more.insert(more.begin(), "health");
    return run_fluvial(*supervisor_, folder_, std::move(more));
  };
  const std::string metrics = fmt::format("0.0.0.0:{}", federation_->coordinator_metrics_port());
  EXPECT_EQ(health({"--metrics-listen", metrics}).exit_status, 0);
  EXPECT_EQ(health({"--metrics-listen", "off", "--data-dir", folder}).exit_status, 0);
  EXPECT_EQ(health({"--metrics-listen", "off", "--data-dir", "/none"}).exit_status, 2);

  const cli::ProcessId site = spawn(member("edge", "a", {"--token-file", file_of(new_token("hospital-a"))}));
  const auto ready = supervisor_->wait_ready(site, std::chrono::seconds(60));
  ASSERT_TRUE(ready.ok()) << ready.error().message;
  const std::string sites =
      fmt::format("127.0.0.1:{}", cli::count_member(cli::parse_json(*ready, "ready").value(), "metrics_port"));
  wait_connected("sites_connected", 1);
  EXPECT_TRUE(cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> {
                return health({"--metrics-listen", sites}).exit_status == 0;
              }).value());
  federation_->kill("coordinator");
  wait_log("a", "lost the parent");
  const CommandRun alone = health({"--metrics-listen", sites});
  EXPECT_EQ(alone.exit_status, 1);
  EXPECT_THAT(alone.output, HasSubstr("/readyz: not ready: no parent"));
  EXPECT_EQ(health({"--metrics-listen", sites, "--live"}).exit_status, 0);

  const CommandRun dead = health({"--metrics-listen", metrics, "--json"});
  EXPECT_EQ(dead.exit_status, 1);
  const auto told = cli::parse_json(dead.output, "health");
  ASSERT_TRUE(told.ok()) << dead.output;
  EXPECT_FALSE(cli::bool_member(*told, "healthy"));
  EXPECT_NE(cli::text_member(*told, "reason"), "");
}

TEST_F(EnrolAgainTest, ATokenGoesIntoAFileOfItsOwn) {
  const std::string out = folder_.file("hospital-a.token");
  const auto create = [&](const std::string& name) {
    return run_fluvial(*supervisor_, folder_,
                       {"token", "create", "--name", name, "--data-dir", folder_.file("coordinator"), "--out", out});
  };
  const CommandRun made = create("hospital-a");
  ASSERT_EQ(made.exit_status, 0) << made.output;
  EXPECT_THAT(made.output, ::testing::Not(HasSubstr("fluvial-1.")));
  struct stat status = {};
  ASSERT_EQ(::stat(out.c_str(), &status), 0);
  EXPECT_EQ(status.st_mode & 07777, 0600u);
  const CommandRun twice = create("hospital-b");
  EXPECT_EQ(twice.exit_status, 1);
  EXPECT_THAT(twice.output, HasSubstr("exists"));
  EXPECT_EQ(cli::array_member(federation_->admin().get("/v1/tokens").value(), "tokens").size(), 1u);
  EXPECT_EQ(
      run_fluvial(*supervisor_, folder_, {"enroll", "--token-file", out, "--data-dir", folder_.file("a")}).exit_status,
      0);
}

}  // namespace
}  // namespace fluvial::integration
