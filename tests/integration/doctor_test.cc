// fluvial doctor beside real processes: a healthy node has no error, and each fault that a test can cause is named with
// what to do about it. The words of all other findings have tests of their own (cli/doctor).
#include <arpa/inet.h>
#include <fmt/format.h>
#include <gmock/gmock.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>

#include "core/base/testing.h"
#include "core/identity/testing.h"
#include "core/local/fd.h"
#include "tests/integration/harness.h"

namespace fluvial::integration {
namespace {

using cli::json::value;
using ::testing::HasSubstr;
using ::testing::Not;

struct Opinion {
  int exit_status = -1;
  value told;
  std::string text;  // "error parent what -> do", a line a finding

  std::uint64_t errors() const { return cli::count_member(told, "errors"); }
};

class DoctorTest : public FederationTest {
 protected:
  Opinion doctor(std::vector<std::string> arguments, std::vector<std::string> launcher = {}) {
    arguments.insert(arguments.begin(), "doctor");
    arguments.emplace_back("--json");
    cli::ProcessSpec spec = fluvial_spec(folder_, fmt::format("doctor-{}", ++count_), std::move(arguments));
    spec.argv.insert(spec.argv.begin(), launcher.begin(), launcher.end());
    const std::string log = spec.log_path;
    const auto process = supervisor_->spawn(std::move(spec));
    EXPECT_TRUE(process.ok()) << process.error().message;
    if (!process.ok()) return {};
    const int status = supervisor_->signal_and_wait(*process, 0);
    Opinion opinion{.exit_status = WIFEXITED(status) ? WEXITSTATUS(status) : -1};
    const std::string output = text_of_file(log);
    const auto told = cli::parse_json(output, "the findings");
    EXPECT_TRUE(told.ok()) << output;
    if (told.ok()) opinion.told = *told;
    for (const value& finding : cli::array_member(opinion.told, "findings")) {
      opinion.text +=
          fmt::format("{} {} {} -> {}\n", cli::text_member(finding, "severity"), cli::text_member(finding, "check"),
                      cli::text_member(finding, "what"), cli::text_member(finding, "do"));
    }
    return opinion;
  }
  std::vector<std::string> coordinator_flags() {
    const value status = federation_->admin().get("/v1/status").value();
    return {"coordinator",
            "--data-dir",
            folder_.file("coordinator"),
            "--public-host",
            "127.0.0.1",
            "--listen",
            fmt::format("127.0.0.1:{}", cli::count_member(status, "member_port")),
            "--enrol-listen",
            fmt::format("127.0.0.1:{}", cli::count_member(status, "enrol_port"))};
  }
  std::string member_address() {
    return fmt::format("127.0.0.1:{}",
                       cli::count_member(federation_->admin().get("/v1/status").value(), "member_port"));
  }
  std::string site_config() const { return folder_.file("site-1") + "/edge.toml"; }
  void expect_error(const Opinion& opinion, const std::string& what, const std::string& advice) {
    EXPECT_EQ(opinion.exit_status, 1) << opinion.text;
    EXPECT_THAT(opinion.text, ::testing::ContainsRegex("error [a-z]+ [^\n]*" + what + "[^\n]* -> [^\n]*" + advice));
  }

 private:
  int count_ = 0;
};

// A listener that is not Fluvial's, on a port of the kernel's choice.
local::UniqueFd somebody_else(std::uint16_t* port) {
  local::UniqueFd socket(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t size = sizeof address;
  EXPECT_EQ(::bind(socket.get(), reinterpret_cast<const sockaddr*>(&address), size), 0);
  EXPECT_EQ(::listen(socket.get(), 1), 0);
  EXPECT_EQ(::getsockname(socket.get(), reinterpret_cast<sockaddr*>(&address), &size), 0);
  *port = ntohs(address.sin_port);
  return socket;
}

TEST_F(DoctorTest, AHealthyFederationHasNoErrorAndIsNotDisturbed) {
  start(1, 1);
  add_workers();
  wait_status(1, [](const value& status) { return cli::count_member(status, "workers") == 1; });
  const Opinion site = doctor({"edge", "--config", site_config()});
  EXPECT_EQ(site.exit_status, 0) << site.text;
  EXPECT_EQ(site.errors(), 0u) << site.text;
  for (const char* said : {"coordinator at 127.0.0.1", "parent at 127.0.0.1", "workers: 1 attached", "worker socket",
                           "its parent is aggregator-1", "h left, renews itself", "fsync", "as the node says"}) {
    EXPECT_THAT(site.text, HasSubstr(said));
  }
  const Opinion aggregator = doctor({"--config", folder_.file("aggregator-1") + "/aggregator.toml"});
  EXPECT_EQ(aggregator.exit_status, 0) << aggregator.text;
  EXPECT_EQ(cli::text_member(aggregator.told, "role"), "aggregator") << "by its folder";
  const Opinion coordinator = doctor(coordinator_flags());
  EXPECT_EQ(coordinator.exit_status, 0) << coordinator.text;
  for (const char* said :
       {"held by this node's process", "as the node says", "held by the coordinator that runs", "reached from here"}) {
    EXPECT_THAT(coordinator.text, HasSubstr(said));
  }
  // Who was only looked at trains on, in the sessions that it had.
  wait_state(start_run(plan(2), 1'000), "done");
  EXPECT_THAT(log_of("site-1"), Not(HasSubstr("lost the parent")));
  EXPECT_THAT(log_of("coordinator"), Not(HasSubstr("child left")));
  for (const char* folder : {"coordinator", "aggregator-1", "site-1"}) {
    for (const auto& entry : std::filesystem::directory_iterator(folder_.file(folder))) {
      EXPECT_THAT(entry.path().filename().string(), Not(HasSubstr("doctor"))) << "something was left";
    }
  }
}

// What a coordinator finds on the way to its aggregators: one that answers as itself, one that is another by now, and
// one that is gone.
TEST_F(DoctorTest, ACoordinatorTriesTheWayToItsAggregators) {
  start(2, 2);
  const Opinion whole = doctor(coordinator_flags());
  EXPECT_EQ(whole.exit_status, 0) << whole.text;
  EXPECT_THAT(whole.text, HasSubstr("2 of 2 aggregators answer at the addresses that their children have"));
  wait_log("aggregator-1", "fluvial-doctor");  // refused, and named
  federation_->kill("aggregator-2");
  const Opinion gone = doctor(coordinator_flags());
  EXPECT_THAT(gone.text,
              ::testing::ContainsRegex("warning aggregators aggregator aggregator-2 at 127.0.0.1:[0-9]+: not "
                                       "reached from here: [^\n]*Connection refused"));
  EXPECT_THAT(gone.text, HasSubstr("1 of 2 aggregators answer"));
}

TEST_F(DoctorTest, WaysToTheCoordinatorThatLeadNowhere) {
  start(1, 0);
  const std::string enrolment =
      fmt::format("127.0.0.1:{}", cli::count_member(federation_->admin().get("/v1/status").value(), "enrol_port"));
  expect_error(doctor({"edge", "--config", site_config(), "--coordinator", "127.0.0.1:1"}), "Connection refused",
               "is that node running");
  expect_error(doctor({"edge", "--config", site_config(), "--coordinator", enrolment}), "coordinator: not reached",
               "7401");
  expect_error(doctor({"edge", "--config", site_config(), "--coordinator", "nobody.invalid:7400"}), "resolve", "DNS");
  std::uint16_t port = 0;
  const local::UniqueFd proxy = somebody_else(&port);
  expect_error(doctor({"edge", "--config", site_config(), "--proxy", fmt::format("http://127.0.0.1:{}", port)}),
               "proxy 127.0.0.1", "no_proxy");
  federation_->kill("coordinator");
  wait_status(1, [](const value& status) { return !cli::bool_member(status, "connected"); });
  expect_error(doctor({"edge", "--config", site_config()}), "has no parent", "its log");
}

TEST_F(DoctorTest, CertificatesThatDoNotServe) {
  start(1, 0);
  const identity::TestPki other;
  const auto with = [&](const std::string& name, const identity::Credentials& credentials) {
    std::filesystem::create_directory(folder_.file(name));
    EXPECT_TRUE(identity::save_credentials(credentials, folder_.file(name) + "/identity").ok());
    return doctor({"edge", "--data-dir", folder_.file(name), "--coordinator", member_address()});
  };
  expect_error(with("expired", other.expired_credentials(Role::kSite, NodeId(7), "hospital-a")), "expired",
               "a new token");
  expect_error(with("foreign", other.credentials(Role::kSite, NodeId(7), "hospital-a")), "coordinator: not reached",
               "another federation");
  expect_error(with("inner", other.credentials(Role::kAggregator, NodeId(8), "eu")), "eu is enrolled as aggregator",
               "a token of that role");
  expect_error(doctor({"edge", "--data-dir", folder_.file("empty"), "--coordinator", member_address()}), "not enrolled",
               "fluvial enroll");
  std::filesystem::permissions(folder_.file("foreign") + "/identity/key.pem", std::filesystem::perms(0644));
  expect_error(doctor({"edge", "--data-dir", folder_.file("foreign"), "--coordinator", member_address()}),
               "has mode 0644", "chmod 600");
}

TEST_F(DoctorTest, APortThatSomebodyElseHas) {
  std::uint16_t port = 0;
  const local::UniqueFd socket = somebody_else(&port);
  expect_error(doctor({"coordinator", "--data-dir", folder_.path(), "--listen", fmt::format("127.0.0.1:{}", port),
                       "--enrol-listen", "127.0.0.1:0"}),
               "has it", "another port");
  expect_error(doctor({"coordinator", "--data-dir", folder_.path(), "--listen", "192.0.2.1:7400", "--enrol-listen",
                       "127.0.0.1:0"}),
               "192.0.2.1", "an address of this machine");
}

TEST_F(DoctorTest, AFolderThatCannotBeUsed) {
  std::ofstream(folder_.file("file")) << "text";
  expect_error(doctor({"coordinator", "--data-dir", folder_.file("file")}), "is no folder", "data_dir");
  expect_error(doctor({"coordinator", "--data-dir", folder_.file("nowhere")}), "not there", "first start");
  const TemporaryFolder open;  // whoever it is can get there
  std::filesystem::permissions(open.path(), std::filesystem::perms(0755));
  const std::string folder = open / "data";
  std::filesystem::create_directory(folder);
  std::vector<std::string> launcher;
  if (::geteuid() == 0)
    launcher = {"/usr/bin/setpriv", "--reuid=65534", "--clear-groups"};  // root may write everywhere
  std::filesystem::permissions(folder, std::filesystem::perms(0555));
  expect_error(doctor({"coordinator", "--data-dir", folder}, launcher), "may not write to it", "chown");
}

TEST_F(DoctorTest, LimitsThatAreTooTight) {
  expect_error(doctor({}, {"/bin/bash", "-c", "ulimit -n 100; exec \"$@\"", "bash"}), "open files: at most 100",
               "LimitNOFILE");
  if (::geteuid() != 0) GTEST_SKIP() << "another /dev/shm takes root";
  const Opinion tiny = doctor(
      {"edge", "--data-dir", folder_.path(), "--coordinator", "127.0.0.1:1"},
      {"/usr/bin/unshare", "-m", "/bin/bash", "-c", "mount -t tmpfs -o size=1m tmpfs /dev/shm && exec \"$@\"", "bash"});
  EXPECT_THAT(tiny.text, ::testing::ContainsRegex("warning kernel /dev/shm: 1.0 MiB[^\n]*--shm-size"));
}

TEST_F(DoctorTest, AJournalThatIsDamaged) {
  start(0, 0);
  const std::vector<std::string> flags = coordinator_flags();
  federation_->kill("coordinator");
  const Opinion whole = doctor(flags);
  EXPECT_THAT(whole.text, HasSubstr("every page as it should be")) << whole.text;
  const std::string path = folder_.file("coordinator") + "/journal.sqlite";
  std::filesystem::remove(path + "-wal");
  const auto size = static_cast<std::streamoff>(std::filesystem::file_size(path));
  ASSERT_GT(size, 0);
  const std::string before = text_of_file(path);
  {
    std::fstream file(path, std::ios::in | std::ios::out | std::ios::binary);
    file.seekp(size / 2);
    file << std::string(static_cast<std::size_t>(size - size / 2), '\xff');
  }
  const std::string damaged = text_of_file(path);
  expect_error(doctor(flags), "journal", "restore a backup");
  EXPECT_EQ(text_of_file(path), damaged) << "it only looks";
  EXPECT_NE(damaged, before);
}

TEST_F(DoctorTest, BeforeEnrolmentByTheTokenAlone) {
  start(0, 0);
  const auto token = federation_->admin().post("/v1/tokens", cli::json::object{{"role", "site"}, {"name", "new"}});
  ASSERT_TRUE(token.ok());
  const std::string file = folder_.file("token.txt");
  std::ofstream(file) << cli::text_member(*token, "token") << "\n";
  std::filesystem::permissions(file, std::filesystem::perms(0600));
  const Opinion opinion = doctor({"--token-file", file});
  EXPECT_EQ(opinion.exit_status, 0) << opinion.text;
  EXPECT_THAT(opinion.text, HasSubstr("it shows the authority of the token's pin"));
  const CommandRun enrolled =
      run_fluvial(*supervisor_, folder_, {"enroll", "--token-file", file, "--data-dir", folder_.file("new")});
  EXPECT_EQ(enrolled.exit_status, 0) << "the token is not used up: " << enrolled.output;
  federation_->kill("coordinator");
  expect_error(doctor({"--token-file", file}), "enrolment port", "is that node running");
}

TEST_F(DoctorTest, FlagsAreARolesOwn) {
  const CommandRun unknown = run_fluvial(*supervisor_, folder_, {"doctor", "--workers=2"});
  EXPECT_EQ(unknown.exit_status, 2);
  EXPECT_THAT(unknown.output, HasSubstr("name the role first"));
  expect_error(doctor({"edge", "--data-dir", folder_.path(), "--coordinator", "c:1", "--wrokers", "2"}), "--wrokers",
               "settings");
}

}  // namespace
}  // namespace fluvial::integration
