// People at the admin API over the network: who is answered what, with real processes.
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/stat.h>

#include <fstream>

#include "cli/operator_identity.h"
#include "core/identity/authority.h"
#include "core/identity/csr.h"
#include "core/store/safetensors.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::object;
using cli::json::value;
using ::testing::AllOf;
using ::testing::HasSubstr;
using ::testing::Not;

class OperatorTest : public FederationTest {
 protected:
  void start_on_network(std::uint64_t sites) {
    cli::FederationShape shape{.sites = sites, .aggregators = 0};
    shape.arguments["coordinator"] = {"--admin-listen", "127.0.0.1:0"};
    start(std::move(shape));
    const auto status = federation_->admin().get("/v1/status");
    ASSERT_TRUE(status.ok());
    port_ = static_cast<std::uint16_t>(cli::count_member(*status, "admin_port"));
    ASSERT_NE(port_, 0);
  }
  std::string url() const { return fmt::format("https://127.0.0.1:{}", port_); }
  std::string identity(const std::string& name) const { return folder_.file("operator-" + name); }
  CommandRun fluvial(std::vector<std::string> arguments) {
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  // As that operator, from anywhere.
  CommandRun as(const std::string& name, std::vector<std::string> arguments) {
    arguments.insert(arguments.end(), {"--admin", url(), "--identity", identity(name)});
    return fluvial(std::move(arguments));
  }
  CommandRun enroll(const std::string& name, const std::string& access) {
    const auto made =
        federation_->admin().post("/v1/tokens", object{{"role", "operator"}, {"name", name}, {"access", access}});
    EXPECT_TRUE(made.ok()) << made.error().message;
    const std::string file = folder_.file(name + "-" + access + ".token");
    std::ofstream(file) << cli::text_member(*made, "token") << "\n";
    EXPECT_EQ(::chmod(file.c_str(), 0600), 0);
    return fluvial({"enroll", "--token-file", file, "--identity", identity(name)});
  }
  net::HttpAddress place(const std::string& folder) const {
    const identity::Credentials credentials = identity::load_credentials(folder).value();
    return net::TlsAddress{{"127.0.0.1", port_}, identity::TlsContext::admin_client(credentials).value()};
  }
  void expect_one_entry(const std::string& kind, const std::string& name) {
    const CommandRun shown =
        fluvial({"audit", "show", "--json", "--last", "0", "--kind", kind, "--data-dir", folder_.file("coordinator")});
    const auto log = cli::parse_json(shown.output, "the log");
    ASSERT_TRUE(log.ok()) << shown.output;
    std::size_t found = 0;
    for (const value& entry : cli::array_member(*log, "entries"))
      found += cli::text_member(entry, "operator") == name ? 1 : 0;
    EXPECT_EQ(found, 1U) << kind << " of " << name << ": " << shown.output;
  }
  std::string serial(const std::string& name) const {
    return identity::load_credentials(identity(name)).value().chain.front().serial_hex();
  }

  std::uint16_t port_ = 0;
};

TEST_F(OperatorTest, AReaderLooksAndAFullOperatorChanges) {
  start_on_network(1);
  ASSERT_EQ(enroll("anna", "read").exit_status, 0);
  ASSERT_EQ(enroll("bert", "full").exit_status, 0);
  struct stat key{};
  ASSERT_EQ(::stat((identity("anna") + "/key.pem").c_str(), &key), 0);
  EXPECT_EQ(key.st_mode & 0777, 0600U);

  for (const char* name : {"anna", "bert"}) {
    const CommandRun nodes = as(name, {"nodes", "list"});
    EXPECT_EQ(nodes.exit_status, 0) << nodes.output;
    EXPECT_THAT(nodes.output, AllOf(HasSubstr("site-1"), Not(HasSubstr("anna"))));
  }
  const CommandRun refused = as("anna", {"nodes", "revoke", "site-1"});
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.output, HasSubstr("operator anna may look at this federation and change nothing"));
  const CommandRun done = as("bert", {"nodes", "revoke", "site-1"});
  EXPECT_EQ(done.exit_status, 0) << done.output;

  ASSERT_EQ(enroll("anna", "full").exit_status, 0) << "another token gives more";
  EXPECT_EQ(as("anna", {"nodes", "remove", "site-1"}).exit_status, 0);
}

TEST_F(OperatorTest, AnOperatorIsNoMemberOfTheTree) {
  start_on_network(1);
  ASSERT_EQ(enroll("anna", "read").exit_status, 0);
  const auto status = federation_->admin().get("/v1/status");
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(cli::count_member(*status, "sites_enrolled"), 1U);
  EXPECT_EQ(cli::count_member(*status, "aggregators_enrolled"), 0U);
  EXPECT_TRUE(cli::array_member(*status, "problems").empty());
  const auto operators = federation_->admin().get("/v1/operators");
  ASSERT_TRUE(operators.ok());
  ASSERT_EQ(cli::array_member(*operators, "operators").size(), 1U);
  EXPECT_EQ(cli::text_member(cli::array_member(*operators, "operators")[0], "access"), "read");
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  const auto again = federation_->admin().get("/v1/operators");
  ASSERT_TRUE(again.ok());
  EXPECT_EQ(cli::text_member(cli::array_member(*again, "operators")[0], "name"), "anna");
}

TEST_F(OperatorTest, WhoIsRevokedIsCutOffInTheMiddleOfAStream) {
  start_on_network(0);
  ASSERT_EQ(enroll("anna", "full").exit_status, 0);
  const net::HttpAddress anna = place(identity("anna"));
  bool revoked = false;
  const auto stream = net::http_get_lines(anna, "/v1/events", [&](std::string_view) {
    if (!std::exchange(revoked, true)) {
      EXPECT_TRUE(federation_->admin().post("/v1/nodes/anna/revoke").ok());
    }
    return true;
  });
  EXPECT_TRUE(revoked);
  EXPECT_FALSE(stream.ok()) << "events have no end of their own";
  const auto after = net::http_request(anna, "GET", "/v1/status", "", std::chrono::seconds(30));
  ASSERT_TRUE(after.ok()) << after.error().message;
  EXPECT_EQ(after->status, 403);
  const CommandRun back = enroll("anna", "full");
  EXPECT_NE(back.exit_status, 0) << "the key stays refused";
  EXPECT_THAT(back.output, HasSubstr("stays refused"));
}

TEST_F(OperatorTest, ASitesCertificateOpensNothing) {
  start_on_network(1);
  const net::HttpAddress site = place(folder_.file("site-1") + "/identity");
  const auto reply = net::http_request(site, "GET", "/v1/status", "", std::chrono::seconds(30));
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 403);
  EXPECT_THAT(reply->body, HasSubstr("may not act as operator"));
  const auto metrics = federation_->metrics_of("coordinator");
  ASSERT_TRUE(metrics.ok());
  EXPECT_THAT(*metrics, HasSubstr("fluvial_coordinator_sessions_refused_total{reason=\"not_admitted\"} 1"));
  const CommandRun command = fluvial({"status", "--admin", url(), "--identity", folder_.file("site-1") + "/identity"});
  EXPECT_NE(command.exit_status, 0);
  EXPECT_THAT(command.output, HasSubstr("is the identity of site"));
}

TEST_F(OperatorTest, TheAuditLogNamesThePerson) {
  start_on_network(0);
  ASSERT_EQ(enroll("bert", "full").exit_status, 0);
  ASSERT_EQ(as("bert", {"token", "create", "--name", "hospital-a"}).exit_status, 0);
  const CommandRun shown = as("bert", {"audit", "show", "--json", "--kind", "token-made", "--last", "1"});
  ASSERT_EQ(shown.exit_status, 0) << shown.output;
  const auto answer = cli::parse_json(shown.output, "the log");
  ASSERT_TRUE(answer.ok()) << shown.output;
  const value& entry = cli::array_member(*answer, "entries").at(0);
  EXPECT_EQ(cli::text_member(entry, "by"), "operator");
  EXPECT_EQ(cli::text_member(entry, "operator"), "bert");
  EXPECT_EQ(cli::text_member(entry, "operator_serial"), serial("bert"));
  EXPECT_THAT(cli::text_member(entry, "from"), HasSubstr("127.0.0.1:"));
  EXPECT_EQ(cli::count_member(entry, "uid"), 0U) << "no user of the coordinator's machine";
}

TEST_F(OperatorTest, ACertificateInTheSecondHalfOfItsLifeIsRenewedByUse) {
  start_on_network(0);
  ASSERT_EQ(enroll("anna", "read").exit_status, 0);
  identity::Credentials credentials = identity::load_credentials(identity("anna")).value();
  const identity::PeerIdentity who = identity::identity_of(credentials.chain.front()).value();
  const WallTime now = SystemClock().wall_now();
  const auto authority = identity::CertificateAuthority::create_or_open(folder_.file("coordinator") + "/ca", "x", now);
  ASSERT_TRUE(authority.ok()) << authority.error().message;
  const Buffer csr = identity::make_csr(credentials.key).value();
  const identity::Grant grant{{who.role, who.node, who.name}, std::chrono::days(30), {}, {}};
  credentials.chain = {authority->issue(csr.span(), grant, now - std::chrono::days(20)).value()};
  ASSERT_TRUE(identity::save_credentials(credentials, identity("anna")).ok());
  const std::string old = serial("anna");

  const CommandRun first = as("anna", {"status"});
  EXPECT_EQ(first.exit_status, 0) << first.output;
  EXPECT_NE(serial("anna"), old);
  const identity::Certificate renewed = identity::load_credentials(identity("anna")).value().chain.front();
  EXPECT_GT(renewed.not_after(), now + std::chrono::days(29));
  const std::string young = serial("anna");
  EXPECT_EQ(as("anna", {"status"}).exit_status, 0);
  EXPECT_EQ(serial("anna"), young) << "once";
}

TEST_F(OperatorTest, ACertificateThatHasEndedIsSaidToHave) {
  start_on_network(0);
  ASSERT_EQ(enroll("anna", "read").exit_status, 0);
  identity::Credentials credentials = identity::load_credentials(identity("anna")).value();
  const WallTime now = SystemClock().wall_now();
  const auto authority = identity::CertificateAuthority::create_or_open(folder_.file("coordinator") + "/ca", "x", now);
  ASSERT_TRUE(authority.ok());
  const identity::PeerIdentity who = identity::identity_of(credentials.chain.front()).value();
  const identity::Grant grant{{who.role, who.node, who.name}, std::chrono::days(30), {}, {}};
  const Buffer csr = identity::make_csr(credentials.key).value();
  credentials.chain = {authority->issue(csr.span(), grant, now - std::chrono::days(31)).value()};
  ASSERT_TRUE(identity::save_credentials(credentials, identity("anna")).ok());
  const CommandRun ended = as("anna", {"status"});
  EXPECT_NE(ended.exit_status, 0);
  EXPECT_THAT(ended.output, AllOf(HasSubstr("the certificate of operator anna"), HasSubstr("ask for a new token")));
  const auto at_the_port =
      net::http_request(place(identity("anna")), "GET", "/v1/status", "", std::chrono::seconds(30));
  EXPECT_FALSE(at_the_port.ok()) << "nor does the coordinator take it";
  EXPECT_EQ(enroll("anna", "read").exit_status, 0) << "the same key with another token";
  EXPECT_EQ(as("anna", {"status"}).exit_status, 0);
}

TEST_F(OperatorTest, ARunIsStartedAndItsModelFetchedFromElsewhere) {
  start_on_network(1);
  add_workers();
  ASSERT_EQ(enroll("bert", "full").exit_status, 0);
  const std::uint64_t before = start_run(plan(1), 300'000);  // more than a part
  wait_state(before, "done");
  const std::string here = folder_.file("here.safetensors");
  ASSERT_EQ(fluvial({"model", "export", here, "--data-dir", folder_.file("coordinator")}).exit_status, 0);
  const std::string there = folder_.file("there.safetensors");
  const CommandRun fetched = as("bert", {"model", "export", there});
  expect_one_entry("model-read", "bert");
  expect_one_entry("admitted", "bert");
  ASSERT_EQ(fetched.exit_status, 0) << fetched.output;
  store::PosixFileSystem files;
  const store::Model local = store::read_model(files, here).value();
  const store::Model remote = store::read_model(files, there).value();
  EXPECT_EQ(store::model_digest(local.bytes.span()), store::model_digest(remote.bytes.span()));

  const std::string plan_file = folder_.file("plan.toml");
  std::ofstream(plan_file) << "name = \"second\"\nrounds = 1\n";
  const CommandRun started = as("bert", {"run", "start", plan_file, "--model", there, "--json"});
  ASSERT_EQ(started.exit_status, 0) << started.output;
  const auto run = cli::parse_json(started.output, "the answer");
  ASSERT_TRUE(run.ok());
  const auto shown = federation_->admin().get(fmt::format("/v1/models/{}/0", cli::count_member(*run, "run")));
  ASSERT_TRUE(shown.ok()) << shown.error().message;
  EXPECT_EQ(cli::text_member(*shown, "sha256"), to_hex(store::model_digest(remote.bytes.span())));
  const auto path = net::http_request(place(identity("bert")), "POST", "/v1/runs",
                                      R"({"plan": {}, "model": "/etc/passwd"})", std::chrono::seconds(30));
  ASSERT_TRUE(path.ok());
  EXPECT_THAT(path->body, HasSubstr("opens no file of its machine"));
}

TEST_F(OperatorTest, NobodyNamesFilesOfTheCoordinatorsMachineFromElsewhere) {
  start_on_network(0);
  ASSERT_EQ(enroll("bert", "full").exit_status, 0);
  const char* files = R"({"certificate": "/etc/hostname", "key": "/etc/shadow", "root": "/etc/hostname"})";
  const auto reply = net::http_request(place(identity("bert")), "POST", "/v1/authority/rollover/begin", files,
                                       std::chrono::seconds(30));
  ASSERT_TRUE(reply.ok()) << reply.error().message;
  EXPECT_EQ(reply->status, 403);
  EXPECT_THAT(reply->body, HasSubstr("opens no file of its machine"));
  const auto authority = federation_->admin().get("/v1/authority");
  ASSERT_TRUE(authority.ok()) << authority.error().message;
  EXPECT_EQ(cli::text_member(*authority, "phase"), "none");
}

TEST_F(OperatorTest, CurlIsAnsweredWithACertificate) {
  if (std::ifstream("/usr/bin/curl").fail()) GTEST_SKIP() << "no curl here";
  start_on_network(0);
  ASSERT_EQ(enroll("anna", "read").exit_status, 0);
  const std::string folder = identity("anna");
  const std::string answer = folder_.file("answer.json");
  const auto process = supervisor_->spawn(
      {.name = "curl",
       .role = "tool",
       .argv = {"/usr/bin/curl", "--silent", "--show-error", "--fail", "--cacert", folder + "/ca.pem", "--cert",
                folder + "/cert.pem", "--key", folder + "/key.pem", "--output", answer, url() + "/v1/self"},
       .log_path = folder_.file("curl.log"),
       .may_fail = true});
  ASSERT_TRUE(process.ok());
  EXPECT_EQ(supervisor_->signal_and_wait(*process, 0), 0);
  std::ifstream in(answer);
  const std::string text((std::istreambuf_iterator<char>(in)), {});
  const auto self = cli::parse_json(text, "the answer");
  ASSERT_TRUE(self.ok()) << text;
  EXPECT_EQ(cli::text_member(*self, "operator"), "anna");
  EXPECT_EQ(cli::text_member(*self, "access"), "read");
}

TEST_F(OperatorTest, TheNetworkIsOffUnlessItIsAskedFor) {
  start(0, 0);
  const auto status = federation_->admin().get("/v1/status");
  ASSERT_TRUE(status.ok());
  EXPECT_EQ(cli::count_member(*status, "admin_port"), 0U);
}

}  // namespace
}  // namespace fluvial::integration
