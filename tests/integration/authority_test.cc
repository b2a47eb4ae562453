// Who issues members' certificates: an authority below a root that openssl(1) made and that no coordinator has seen the
// key of, and a rollover from one authority to the next while rounds go on.
#include "core/identity/authority.h"

#include <fmt/format.h>
#include <gmock/gmock.h>
#include <sys/wait.h>

#include <filesystem>
#include <fstream>
#include <iterator>

#include "core/identity/credentials.h"
#include "core/identity/verify.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

namespace fs = std::filesystem;
using cli::json::value;
using ::testing::AllOf;
using ::testing::HasSubstr;

constexpr std::chrono::seconds kPatience{60};

class AuthorityTest : public FederationTest {
 protected:
  CommandRun authority(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), "authority");
    arguments.insert(arguments.end(), {"--data-dir", folder_.file("coordinator")});
    return run_fluvial(*supervisor_, folder_, std::move(arguments));
  }
  value view() { return federation_->admin().get("/v1/authority").value(); }
  void step(const std::string& name) {
    const CommandRun taken = authority({"rollover", name});
    EXPECT_EQ(taken.exit_status, 0) << taken.output;
  }
  // Until nobody is named in `list` ("without", "relying") of the phase.
  void wait_nobody(const char* list, const char* phase) {
    const auto done = cli::retry(kPatience, [&]() -> Result<bool> {
      const value now = view();
      return cli::text_member(now, "phase") == phase && cli::array_member(now, list).empty();
    });
    EXPECT_TRUE(done.ok() && *done) << cli::pretty(view());
  }
  identity::Credentials credentials(const std::string& member) {
    const auto loaded = identity::load_credentials(folder_.file(member) + "/identity");
    EXPECT_TRUE(loaded.ok()) << member << ": " << loaded.error().message;
    return *loaded;
  }
  std::string root_pin(const identity::Credentials& member) {
    return identity::pin_of(*identity::root_of(member.chain, member.authorities));
  }
  CommandRun openssl(std::vector<std::string> arguments) {
    arguments.insert(arguments.begin(), {"/usr/bin/env", "openssl"});
    cli::ProcessSpec spec = fluvial_spec(folder_, fmt::format("openssl-{}", ++commands_), {});
    spec.argv = std::move(arguments);
    const std::string log = spec.log_path;
    const auto process = supervisor_->spawn(std::move(spec));
    EXPECT_TRUE(process.ok()) << process.error().message;
    if (!process.ok()) return {};
    const int status = supervisor_->signal_and_wait(*process, 0);
    std::ifstream text(log);
    return {WIFEXITED(status) ? WEXITSTATUS(status) : -1, {std::istreambuf_iterator<char>(text), {}}};
  }
  void must(const CommandRun& run) { EXPECT_EQ(run.exit_status, 0) << run.output; }

  // As docs/operations/authorities.md has it, the root's holder with another key type than ours.
  void make_root() {
    must(openssl({"req", "-x509", "-newkey", "rsa:3072", "-nodes", "-keyout", folder_.file("root-key.pem"), "-out",
                  folder_.file("root.pem"), "-days", "3650", "-sha256", "-subj", "/CN=Hospitals Root", "-addext",
                  "basicConstraints=critical,CA:TRUE", "-addext", "keyUsage=critical,keyCertSign,cRLSign"}));
  }
  void make_authority() {
    must(run_fluvial(*supervisor_, folder_,
                     {"authority", "request", "--federation", "hospitals", "--key", folder_.file("authority-key.pem"),
                      "--out", folder_.file("authority.csr")}));
    std::ofstream(folder_.file("authority.ext"))
        << "basicConstraints=critical,CA:TRUE,pathlen:0\nkeyUsage=critical,keyCertSign,cRLSign\n"
           "subjectKeyIdentifier=hash\nauthorityKeyIdentifier=keyid:always\n";
    must(openssl({"x509", "-req", "-in", folder_.file("authority.csr"), "-CA", folder_.file("root.pem"), "-CAkey",
                  folder_.file("root-key.pem"), "-CAcreateserial", "-days", "1825", "-sha256", "-extfile",
                  folder_.file("authority.ext"), "-out", folder_.file("authority.pem")}));
  }
  std::string pem_pin(const std::string& file) {
    return identity::pin_of(identity::Certificate::load_chain(folder_.file(file))->back());
  }
  static cli::FederationShape living(int seconds, std::uint64_t sites, std::uint64_t aggregators) {
    cli::FederationShape shape{.sites = sites, .aggregators = aggregators};
    shape.arguments["coordinator"] = {"--certificate-validity-s", std::to_string(seconds)};
    return shape;
  }

 private:
  int commands_ = 0;
};

TEST_F(AuthorityTest, BelowARootThatStaysOfflineAFederationTrainsAndMembersTrustThatRootAlone) {
  make_root();
  make_authority();
  cli::FederationShape shape{.sites = 2, .aggregators = 1};
  shape.arguments["coordinator"] = {"--authority-certificate", folder_.file("authority.pem"),
                                    "--authority-key",         folder_.file("authority-key.pem"),
                                    "--authority-root",        folder_.file("root.pem")};
  start(std::move(shape));
  fs::remove(folder_.file("root-key.pem"));
  add_workers();
  const std::uint64_t run = start_run(plan(3), 1'000);
  wait_state(run, "done");
  expect_exact(run, 3);
  for (const char* member : {"aggregator-1", "site-1", "site-2"}) {
    const identity::Credentials held = credentials(member);
    EXPECT_EQ(held.chain.size(), 2U) << member;
    ASSERT_EQ(held.authorities.size(), 1U) << member;
    EXPECT_EQ(identity::pin_of(held.authorities.front()), pem_pin("root.pem")) << member;
    EXPECT_EQ(identity::federation_of(held), "hospitals");
  }
  // What was taken over at the first start is enough for those after it.
  fs::remove(folder_.file("authority-key.pem"));
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  EXPECT_EQ(cli::text_member(view(), "phase"), "none");
}

TEST_F(AuthorityTest, AKeyThatMembersCouldNotCheckIsRefusedBeforeAnythingIsFounded) {
  make_root();
  const CommandRun refused =
      run_fluvial(*supervisor_, folder_,
                  {"coordinator", "--data-dir", folder_.file("c"), "--listen", "127.0.0.1:0", "--enrol-listen",
                   "127.0.0.1:0", "--metrics-listen", "off", "--authority-certificate", folder_.file("root.pem"),
                   "--authority-key", folder_.file("root-key.pem"), "--authority-root", folder_.file("root.pem")});
  EXPECT_NE(refused.exit_status, 0);
  EXPECT_THAT(refused.output, HasSubstr("neither ECDSA P-256 nor Ed25519"));
}

TEST_F(AuthorityTest, ARolloverGoesThroughAllItsStepsWhileRoundsGoOnAndNobodyEnrolsAgain) {
  constexpr std::uint64_t kEndless = 100'000;
  make_root();
  make_authority();
  start(living(6, 3, 1));
  add_workers();
  const std::uint64_t run = start_run(plan(kEndless), 1'000);
  wait_committed(run, 2);
  const std::string old_pin = root_pin(credentials("site-1"));
  const auto token = federation_->admin().post("/v1/tokens", {{"role", "site"}, {"name", "newcomer"}, {"ttl_s", 600}});
  ASSERT_TRUE(token.ok()) << token.error().message;
  fs::copy(folder_.file("site-3") + "/identity", folder_.file("stolen"));

  EXPECT_EQ(authority({"rollover", "issue"}).exit_status, 1);
  const CommandRun begun = authority({"rollover", "begin", "--certificate", folder_.file("authority.pem"), "--key",
                                      folder_.file("authority-key.pem"), "--root", folder_.file("root.pem")});
  ASSERT_EQ(begun.exit_status, 0) << begun.output;
  EXPECT_THAT(begun.output, AllOf(HasSubstr("issuing"), HasSubstr("next"), HasSubstr("Hospitals Root")));
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  federation_->kill("site-1");
  ASSERT_TRUE(federation_->restart("site-1").ok());
  wait_nobody("without", "begun");
  EXPECT_EQ(credentials("site-2").authorities.size(), 2U);

  step("issue");
  federation_->kill("aggregator-1");
  ASSERT_TRUE(federation_->restart("aggregator-1").ok());
  federation_->kill("coordinator");
  ASSERT_TRUE(federation_->restart("coordinator").ok());
  // A token from before names the authority before, and is as good as it was.
  const CommandRun enrolled =
      run_fluvial(*supervisor_, folder_,
                  {"enroll", "--token", cli::text_member(*token, "token"), "--data-dir", folder_.file("newcomer")});
  EXPECT_EQ(enrolled.exit_status, 0) << enrolled.output;
  EXPECT_EQ(root_pin(credentials("newcomer")), pem_pin("root.pem"));
  wait_nobody("relying", "issuing");

  step("end");
  const auto over = cli::retry(kPatience, [&]() -> Result<bool> {
    for (const char* member : {"aggregator-1", "site-1", "site-2", "site-3"}) {
      if (credentials(member).authorities.size() != 1) return false;
    }
    return true;
  });
  EXPECT_TRUE(over.ok() && *over);
  for (const char* member : {"aggregator-1", "site-1", "site-2", "site-3"}) {
    EXPECT_EQ(root_pin(credentials(member)), pem_pin("root.pem")) << member;
  }
  wait_committed(run, cli::count_member(committed(run).back(), "round") + 3);
  EXPECT_EQ(cli::text_member(view(), "phase"), "none");
  const CommandRun log =
      run_fluvial(*supervisor_, folder_, {"audit", "show", "--data-dir", folder_.file("coordinator"), "--json"});
  EXPECT_THAT(log.output,
              AllOf(HasSubstr("rollover-begun"), HasSubstr("rollover-issues"), HasSubstr("rollover-ended")));

  // What the old authority issued opens nothing any more, not even the door for those whose certificate has ended.
  federation_->kill("site-3");
  fs::remove_all(folder_.file("site-3") + "/identity");
  fs::copy(folder_.file("stolen"), folder_.file("site-3") + "/identity");
  ASSERT_TRUE(federation_->restart("site-3").ok());
  wait_log("site-3", "without another one no parent lets this node in");
  EXPECT_EQ(root_pin(credentials("site-3")), old_pin);
  ASSERT_TRUE(federation_->admin().post(fmt::format("/v1/runs/{}/stop", run)).ok());
  wait_state(run, "stopped");
}

// Its certificate has hours to go, and it hears of nobody whom it trusts what to do about that.
TEST_F(AuthorityTest, AMemberThatARolloverDidNotWaitForIsBackByItself) {
  start(living(36'000, 2, 0));
  const std::string old_pin = root_pin(credentials("site-1"));
  federation_->kill("site-1");
  step("begin");
  const CommandRun refused = authority({"rollover", "issue"});
  EXPECT_EQ(refused.exit_status, 1);
  EXPECT_THAT(refused.output, HasSubstr("site-1"));
  const CommandRun forced = authority({"rollover", "issue", "--force"});
  ASSERT_EQ(forced.exit_status, 0) << forced.output;
  ASSERT_TRUE(federation_->restart("site-1").ok());
  for (const char* site : {"site-1", "site-2"}) {  // one that was away, and one whose parent it was that went over
    const auto back = cli::retry(kPatience, [&]() -> Result<bool> {
      const identity::Credentials held = credentials(site);
      return held.authorities.size() == 2 && root_pin(held) != old_pin;
    });
    EXPECT_TRUE(back.ok() && *back) << site;
  }
  wait_nobody("relying", "issuing");
}

TEST_F(AuthorityTest, ANextAuthorityThatWasTakenBackIsForgottenByMembersToo) {
  start(living(4, 1, 0));
  const std::string old_pin = root_pin(credentials("site-1"));
  step("begin");
  wait_nobody("without", "begun");
  EXPECT_EQ(credentials("site-1").authorities.size(), 2U);
  step("undo");
  const auto forgotten =
      cli::retry(kPatience, [&]() -> Result<bool> { return credentials("site-1").authorities.size() == 1; });
  EXPECT_TRUE(forgotten.ok() && *forgotten);
  EXPECT_EQ(root_pin(credentials("site-1")), old_pin);
}

}  // namespace
}  // namespace fluvial::integration
