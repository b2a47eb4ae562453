// What an administrator does about members and invitations: several by one token, taken back, removed, gone past.
#include <fmt/format.h>
#include <gmock/gmock.h>

#include <csignal>
#include <filesystem>
#include <fstream>

#include "core/identity/credentials.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

namespace fs = std::filesystem;
using cli::json::value;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::MatchesRegex;
using ::testing::Not;

class MembersTest : public FederationTest {
 protected:
  void SetUp() override { start(0, 0); }

  // A command at the coordinator's.
  CommandRun admin(std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--data-dir", folder_.file("coordinator")});
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  std::string new_token(std::vector<std::string> more) {  // its file
    const std::string file = folder_.file(fmt::format("token-{}", ++files_));
    more.insert(more.begin(), {"token", "create", "--out", file});
    const CommandRun made = admin(std::move(more));
    EXPECT_EQ(made.exit_status, 0) << made.output;
    return file;
  }
  CommandRun enroll(const std::string& token_file, const std::string& folder) {
    return run_fluvial(*supervisor_, folder_,
                       {"enroll", "--token-file", token_file, "--data-dir", folder_.file(folder)});
  }
  identity::PeerIdentity member_in(const std::string& folder) {
    const auto credentials = identity::load_credentials(folder_.file(folder) + "/identity");
    EXPECT_TRUE(credentials.ok()) << credentials.error().message;
    return identity::identity_of(credentials->chain.front()).value();
  }
  cli::ProcessId start_edge(const std::string& folder, const std::string& log, std::vector<std::string> more = {}) {
    more.insert(more.begin(), {"edge", "--config", folder_.file(folder) + "/edge.toml"});
    const auto process = supervisor_->spawn(fluvial_spec(folder_, log, std::move(more)));
    EXPECT_TRUE(process.ok()) << process.error().message;
    return *process;
  }
  value node(const std::string& name) {
    const value nodes = federation_->admin().get("/v1/nodes?all=1").value();
    const auto list = cli::array_member(nodes, "nodes");
    for (const value& each : list) {
      if (cli::text_member(each, "name") == name) return each;
    }
    return {};
  }
  void wait_connected(const std::string& name) {
    const auto up = cli::retry(std::chrono::seconds(60),
                               [&]() -> Result<bool> { return cli::bool_member(node(name), "connected"); });
    EXPECT_TRUE(up.ok() && *up) << name;
  }
  value only_token() {
    const value tokens = federation_->admin().get("/v1/tokens").value();
    const auto list = cli::array_member(tokens, "tokens");
    EXPECT_EQ(list.size(), 1U);
    return list.front();
  }
  int files_ = 0;
};

TEST_F(MembersTest, OneTokenForSeveralByWish) {
  const std::string token = new_token({"--name", "eu", "--region", "eu", "--uses", "2"});
  EXPECT_THAT(admin({"token", "list"}).output, AllOf(HasSubstr("eu-*"), HasSubstr("valid"), HasSubstr("0/2")));
  ASSERT_EQ(enroll(token, "a").exit_status, 0);
  const identity::PeerIdentity first = member_in("a");
  EXPECT_THAT(first.name, MatchesRegex("eu-[0-9a-f]{12}"));

  // An answer that was lost costs no second use, and the member is the same.
  fs::remove(folder_.file("a") + "/identity/cert.pem");
  ASSERT_EQ(enroll(token, "a").exit_status, 0);
  EXPECT_EQ(member_in("a"), first);
  EXPECT_EQ(cli::count_member(only_token(), "uses"), 1U);
  EXPECT_THAT(enroll(token, "a").output, HasSubstr("enrolled already"));

  ASSERT_EQ(enroll(token, "b").exit_status, 0);
  EXPECT_NE(member_in("b").name, first.name);
  const CommandRun third = enroll(token, "c");
  EXPECT_EQ(third.exit_status, 1);
  EXPECT_THAT(third.output, HasSubstr("was used 2 times, the last at"));
  EXPECT_EQ(cli::text_member(only_token(), "state"), "used");
  start_edge("b", "edge-b", {"--metrics-listen", "off"});
  wait_connected(member_in("b").name);
}

TEST_F(MembersTest, ATokenIsTakenBack) {
  const std::string token = new_token({"--name", "hospital-a"});
  const std::string id = cli::text_member(only_token(), "id");
  const CommandRun revoked = admin({"token", "revoke", id});
  EXPECT_EQ(revoked.exit_status, 0) << revoked.output;
  EXPECT_EQ(admin({"token", "revoke", id, "--json"}).exit_status, 0) << "again";
  EXPECT_THAT(admin({"token", "list"}).output, HasSubstr("revoked"));
  const CommandRun refused = enroll(token, "a");
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.output, HasSubstr("was revoked at"));
  for (const std::string unknown : {"nonsense", "../nodes/x", "%00", "a/b?c"}) {
    const CommandRun none = admin({"token", "revoke", unknown});
    EXPECT_EQ(none.exit_status, 1) << unknown;
    EXPECT_THAT(none.output, AllOf(HasSubstr("fluvial token revoke"), Not(HasSubstr("is revoked"))));
  }
  ASSERT_EQ(enroll(new_token({"--name", "hospital-a"}), "a").exit_status, 0);
  const auto tokens = federation_->admin().get("/v1/tokens").value();
  const auto list = cli::array_member(tokens, "tokens");
  for (const value& each : list) {
    if (cli::text_member(each, "state") != "used") continue;
    EXPECT_THAT(admin({"token", "revoke", cli::text_member(each, "id")}).output,
                HasSubstr("fluvial nodes revoke NAME"));
  }
}

TEST_F(MembersTest, WhatWasRevokedStaysRevokedWhenItIsRemovedAndEnrolledAnew) {
  ASSERT_EQ(enroll(new_token({"--name", "hospital-a"}), "old").exit_status, 0);
  const cli::ProcessId old = start_edge("old", "edge-old", {"--metrics-listen", "off"});
  wait_connected("hospital-a");
  const CommandRun connected = admin({"nodes", "remove", "hospital-a"});
  EXPECT_EQ(connected.exit_status, 1);
  EXPECT_THAT(connected.output, HasSubstr("fluvial nodes revoke hospital-a"));
  ASSERT_EQ(admin({"nodes", "revoke", "hospital-a"}).exit_status, 0);
  wait_log("edge-old", "on the deny list");
  ASSERT_EQ(admin({"nodes", "remove", "hospital-a"}).exit_status, 0);
  EXPECT_THAT(admin({"nodes", "list"}).output, HasSubstr("no members yet"));
  EXPECT_THAT(admin({"nodes", "list", "--all"}).output, AllOf(HasSubstr("hospital-a"), HasSubstr("removed")));
  EXPECT_EQ(admin({"nodes", "remove", "nobody"}).exit_status, 1);

  // The name is a member's again; the key from before is not.
  ASSERT_EQ(enroll(new_token({"--name", "hospital-a"}), "new").exit_status, 0);
  start_edge("new", "edge-new", {"--metrics-listen", "off"});
  wait_connected("hospital-a");
  wait_log("edge-old", "the member has enrolled anew since");
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  wait_connected("hospital-a");
  supervisor_->signal_and_wait(old, SIGKILL);
  start_edge("old", "edge-again", {"--metrics-listen", "off"});
  wait_log("edge-again", "the member has enrolled anew since");
  EXPECT_THAT(admin({"nodes", "list"}).output, AllOf(HasSubstr("hospital-a"), HasSubstr("connected")));
}

TEST_F(MembersTest, ARegionThatGoesPastItsAggregatorIsShown) {
  ASSERT_EQ(enroll(new_token({"--name", "eu-agg", "--role", "aggregator", "--region", "eu"}), "agg").exit_status, 0);
  ASSERT_EQ(enroll(new_token({"--name", "hospital-a", "--region", "eu/west"}), "a").exit_status, 0);
  start_edge("a", "edge-a", {"--metrics-listen", "off"});
  wait_connected("hospital-a");
  EXPECT_THAT(admin({"nodes", "list"}).output,
              AllOf(HasSubstr("past eu-agg"), HasSubstr("hospital-a: eu-agg has enrolled and never come")));
  EXPECT_THAT(log_of("coordinator"), AllOf(HasSubstr("goes past its aggregator"), HasSubstr("aggregator=eu-agg")));
}

TEST_F(MembersTest, SeveralProcessesOfAMachineDoNotClash) {
  const auto health = [&](const std::string& folder) {
    return run_fluvial(*supervisor_, folder_, {"health", "--json", "--data-dir", folder_.file(folder)});
  };
  for (const std::string name : {"a", "b"}) {
    ASSERT_EQ(enroll(new_token({"--name", name}), name).exit_status, 0);
    EXPECT_THAT(health(name).output, HasSubstr("no process has been started with this data folder"));
    start_edge(name, "edge-" + name);
  }
  std::vector<std::string> asked;
  for (const std::string name : {"a", "b"}) {
    wait_connected(name);
    EXPECT_TRUE(
        cli::retry(std::chrono::seconds(60), [&]() -> Result<bool> { return health(name).exit_status == 0; }).value());
    asked.push_back(cli::text_member(cli::parse_json(health(name).output, "health").value(), "asked"));
  }
  EXPECT_NE(asked[0], asked[1]);
  std::ofstream(folder_.file("a") + "/metrics.address") << std::string(4000, '9');
  EXPECT_NE(health("a").exit_status, 0) << "what nobody of ours has written";
}

}  // namespace
}  // namespace fluvial::integration
